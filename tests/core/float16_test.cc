#include "core/float16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "testing.h"

namespace alibi::core {
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

TEST(Float16, EveryValueComesBackAndWhatLiesBetweenGoesToTheNearest) {
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const float low = float16_to_float(static_cast<uint16_t>(bits));
    ASSERT_EQ(float_to_float16(low), bits);
    ASSERT_EQ(float_to_float16(-low), bits | 0x8000u);
    // Above the largest the next would be 65536.
    const float high = bits + 1 < 0x7c00 ? float16_to_float(static_cast<uint16_t>(bits + 1)) : 65536.0f;
    const float middle = low + (high - low) / 2;
    ASSERT_EQ(float_to_float16(middle), bits + (bits & 1)) << middle;
    ASSERT_EQ(float_to_float16(std::nextafter(middle, 0.0f)), bits) << middle;
    ASSERT_EQ(float_to_float16(std::nextafter(middle, 1e6f)), bits + 1) << middle;
  }
  EXPECT_EQ(float_to_float16(INFINITY), 0x7c00);
  EXPECT_EQ(float_to_float16(-1e30f), 0xfc00);
  EXPECT_TRUE(std::isnan(float16_to_float(float_to_float16(NAN))));
  EXPECT_TRUE(std::isnan(float16_to_float(float_to_float16(std::bit_cast<float>(0xff800001u)))));
}

TEST(Float16, IsATypeOfTensors) {
  const std::vector<float> values = {1, -0.5f, 65504, 0x1p-24f, 1.0f + 0x1p-12f, INFINITY};
  const Tensor half = Tensor::from(values, {2, 3}).to(DType::float16);
  EXPECT_EQ(half.bytes(), 12u);
  EXPECT_STREQ(name_of(half.dtype()), "float16");
  EXPECT_EQ(half.to_floats(), (std::vector<float>{1, -0.5f, 65504, 0x1p-24f, 1, INFINITY}));
  EXPECT_EQ(half.data<float16>()[1].bits, 0xb800);
  EXPECT_EQ(half.slice(1, 1, 3).to(DType::bfloat16).to_floats()[3], INFINITY);
  test::expect_error([&] { half.data<bfloat16>(); }, "bfloat16 elements were requested from a float16 tensor");
}

}  // namespace
}  // namespace alibi::core
