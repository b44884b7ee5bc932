// Windows of a text: what is counted, sorted and merged.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>

#include "dart/store_data.h"

namespace dart {

inline constexpr Token kEnd = -1;  // follows every sequence; before every token in the order

// The next `Order` tokens from a place in the text, kEnd after the end of its sequence, and how
// often they come. The counts of all n-grams are sums of these over what begins alike.
template <int Order>
struct Window {
  std::array<Token, Order> tokens;
  std::uint32_t count;

  bool operator<(const Window& other) const { return tokens < other.tokens; }
};

// Calls `visit` with `count` in the pieces that records can hold.
template <typename Visit>
void for_each_piece(Count count, const Visit& visit) {
  constexpr Count kLargest = std::numeric_limits<std::uint32_t>::max();
  for (; count > 0; count -= std::min(count, kLargest)) {
    visit(static_cast<std::uint32_t>(std::min(count, kLargest)));
  }
}

inline void check_order(int order) {
  if (order < 1 || order > kMaxOrder) {
    throw std::invalid_argument("order is " + std::to_string(order) + ", expected 1.." +
                                std::to_string(kMaxOrder));
  }
}

// Calls `body.template operator()<order>()`, for code whose records have a size. Throws
// std::invalid_argument for an order out of range.
template <typename Body>
void with_order(int order, const Body& body) {
  check_order(order);
  switch (order) {
    case 1:
      return body.template operator()<1>();
    case 2:
      return body.template operator()<2>();
    case 3:
      return body.template operator()<3>();
    case 4:
      return body.template operator()<4>();
    case 5:
      return body.template operator()<5>();
    case 6:
      return body.template operator()<6>();
    case 7:
      return body.template operator()<7>();
    default:
      return body.template operator()<8>();
  }
}

}  // namespace dart
