// Escape stops what runs, from wherever the cursor is.
() => {
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.defaultPrevented) return;
    for (const id of ["stop", "chat-stop"]) {
      const button = document.getElementById(id);
      if (button && !button.disabled && button.offsetParent) button.click();
    }
  });
}
