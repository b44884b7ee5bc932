// Long passes over nodes that tell how far they are, can be interrupted, and run two at a time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <stdexcept>
#include <utility>

#include "dart/store_data.h"

namespace dart {

// A pass says at() with ascending nodes; now and then there is a beat, which may throw.
class Pulse {
 public:
  virtual ~Pulse() = default;
  void at(NodeId node) {
    if (node < next_) return;
    next_ = node + kNodesPerBeat;
    beat(node);
  }
  // Where there are no nodes to count.
  void wait() { beat(next_ - kNodesPerBeat); }

 protected:
  void restart() { next_ = kNodesPerBeat; }
  virtual void beat(NodeId node) = 0;

 private:
  static constexpr NodeId kNodesPerBeat = NodeId{1} << 17;
  NodeId next_ = kNodesPerBeat;
};

// Tells the progress of a level that takes several passes.
class LevelPulse final : public Pulse {
 public:
  using Report = std::function<void(int level, std::uint64_t nodes_done, std::uint64_t nodes)>;

  LevelPulse(const Report& report, int level, std::uint64_t nodes, std::uint64_t passes)
      : report_(report), level_(level), nodes_(nodes), passes_(passes) {
    beat(0);
  }
  void end_pass() {
    ++done_;
    restart();
    beat(0);
  }

 private:
  void beat(NodeId node) override {
    if (report_) report_(level_, (done_ * nodes_ + node) / passes_, nodes_);
  }

  const Report& report_;
  int level_;
  std::uint64_t nodes_;
  std::uint64_t passes_;
  std::uint64_t done_ = 0;
};

// Ends a pass on another thread.
class StopPulse final : public Pulse {
 public:
  void stop() { is_stopped_ = true; }

 private:
  void beat(NodeId) override {
    if (is_stopped_) throw std::runtime_error("stopped with the other thread");
  }

  std::atomic<bool> is_stopped_ = false;
};

// Calls here(pulse) and, on another thread, beside(a pulse). Throws what the first throws, else
// what the second does. With few nodes, one after the other.
template <typename Here, typename Beside>
void run_both(LevelPulse& pulse, std::uint64_t nodes, const Here& here, const Beside& beside) {
  StopPulse stop;
  if (nodes < (std::uint64_t{1} << 16)) {
    here(pulse);
    beside(stop);
    return;
  }
  std::future<void> other = std::async(std::launch::async, [&] { beside(stop); });
  try {
    here(pulse);
    while (other.wait_for(std::chrono::milliseconds(100)) != std::future_status::ready) {
      pulse.wait();
    }
  } catch (...) {
    stop.stop();
    other.wait();
    throw;
  }
  other.get();
}

}  // namespace dart
