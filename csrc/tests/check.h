// The few assertions the C++ tests need, so that building them needs no network.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

// Stops the test program with the place and the failed expression.
#define CHECK(condition)                                                          \
  do {                                                                            \
    if (!(condition)) {                                                           \
      std::fprintf(stderr, "%s:%d: CHECK(%s)\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                               \
    }                                                                             \
  } while (false)

// The expression throws `Exception` with `part` in its message.
#define CHECK_THROWS(expression, Exception, part)                             \
  do {                                                                        \
    bool has_thrown = false;                                                  \
    try {                                                                     \
      (void)(expression);                                                     \
    } catch (const Exception& error) {                                        \
      has_thrown = std::string(error.what()).find(part) != std::string::npos; \
      if (!has_thrown) std::fprintf(stderr, "message: %s\n", error.what());   \
    }                                                                         \
    CHECK(has_thrown && #expression);                                         \
  } while (false)
