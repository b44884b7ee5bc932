// Draws at most once per animation frame, however often it is asked to.

// Frames that come faster than the browser can draw are drawn as one, or a slow one would fall
// behind. The timer is for a tab in the background, which draws nothing.
export function coalesced(draw) {
  let waiting = false;
  function go() {
    if (!waiting) return;
    waiting = false;
    draw();
  }
  return function soon() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(go);
    setTimeout(go, 200);
  };
}
