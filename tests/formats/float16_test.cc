#include "formats/float16.h"

#include <gtest/gtest.h>

#include <cmath>

namespace alibi {
namespace {

TEST(Float16, EveryValueIsExact) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const int exponent = static_cast<int>(bits >> 10) & 31;
    const int fraction = static_cast<int>(bits & 1023);
    const double sign = bits & 0x8000 ? -1 : 1;
    const float found = float16_to_float(static_cast<uint16_t>(bits));
    if (exponent == 31 && fraction != 0) {
      ASSERT_TRUE(std::isnan(found)) << bits;
    } else if (exponent == 31) {
      ASSERT_EQ(found, static_cast<float>(sign * INFINITY)) << bits;
    } else {
      const double magnitude = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
      ASSERT_EQ(static_cast<double>(found), sign * magnitude) << bits;
    }
    ASSERT_EQ(std::signbit(found), (bits & 0x8000) != 0) << bits;
  }
}

}  // namespace
}  // namespace alibi
