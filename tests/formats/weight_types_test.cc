#include "formats/weight_types.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "core/float16.h"
#include "core/random.h"

namespace alibi::formats {
namespace {

std::vector<float> numbers_of(const q8_block& block) {
  std::vector<float> numbers;
  for (const int8_t value : block.values)
    numbers.push_back(static_cast<float>(block.scale) * static_cast<float>(value));
  return numbers;
}

/// A block of random bytes whose scales, at these places, are small numbers.
std::vector<std::byte> random_type_block(const WeightType& type, std::vector<int> scales, uint64_t seed) {
  const core::Random random(seed, 1);
  std::vector<std::byte> block(static_cast<size_t>(type.block_bytes));
  for (size_t i = 0; i < block.size(); ++i) block[i] = static_cast<std::byte>(random.below(i, 256));
  for (const int at : scales) {
    const uint16_t bits = core::float_to_float16(random.uniform(1000 + static_cast<uint64_t>(at)) / 8);
    std::memcpy(&block[static_cast<size_t>(at)], &bits, sizeof bits);
  }
  return block;
}

/// What a block holds is encoded as the same numbers.
TEST(WeightTypes, NumbersOfABlockAreEncodedExactly) {
  for (const char* name : {"Q8_0", "Q4_0"}) {
    const WeightType& type = *weight_type(name);
    for (uint64_t seed = 0; seed < 50; ++seed) {
      std::vector<std::byte> block = random_type_block(type, {0}, seed);
      const bool has_bytes = type.dtype == DType::q8_0;
      for (std::byte& byte : block) byte = has_bytes && byte == std::byte{0x80} ? std::byte{0x81} : byte;  // not -128
      block[2] = has_bytes ? std::byte{127} : std::byte{0};  // the largest magnitude
      std::vector<float> expected(32), found(32);
      type.decode(block.data(), expected.data());
      type.encode(expected.data(), block.data());
      type.decode(block.data(), found.data());
      EXPECT_EQ(found, expected) << name;
    }
  }
}

/// The error of normal numbers in Q4_K is that of the best line for each group, to a few percent.
TEST(WeightTypes, NumbersInQ4KAreRoundedWell) {
  const WeightType& type = *weight_type("Q4_K");
  double squares = 0, errors = 0, rounded_to_range = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const core::Random random(seed, 2);
    std::vector<float> values(256), found(256);
    for (size_t i = 0; i < 256; ++i)
      values[i] = random.normal(i) * (seed % 4 == 0 ? 1e-3f : 1) + (seed % 3 == 0 ? 1 : 0);
    std::vector<std::byte> block(144);
    type.encode(values.data(), block.data());
    type.decode(block.data(), found.data());
    for (size_t group = 0; group < 256; group += 32) {
      const auto [least, most] = std::minmax_element(values.begin() + group, values.begin() + group + 32);
      const float low = std::min(0.0f, *least), step = (*most - low) / 15;
      for (size_t i = group; i < group + 32; ++i) {
        const double naive = low + step * std::round((values[i] - low) / step) - values[i], off = found[i] - values[i];
        squares += values[i] * values[i], errors += off * off, rounded_to_range += naive * naive;
        EXPECT_LE(std::abs(off), 1.2 * step) << seed << " " << i;
      }
    }
  }
  RecordProperty("relative_error", fmt::format("{}", std::sqrt(errors / squares)));
  EXPECT_LT(errors, rounded_to_range);  // beside the range of each group, divided by 15 and not rounded to 6 bits
}

TEST(WeightTypes, NumbersThatHaveNoRangeAreEncoded) {
  for (const char* name : {"Q8_0", "Q4_0", "Q4_K"}) {
    const WeightType& type = *weight_type(name);
    for (const float value : {0.0f, 1.0f, -1.0f, 1e-30f, -1e-44f, 60000.0f}) {
      std::vector<float> values(static_cast<size_t>(type.block_elements), value), found(values.size());
      std::vector<std::byte> block(static_cast<size_t>(type.block_bytes));
      type.encode(values.data(), block.data());
      type.decode(block.data(), found.data());
      for (const float number : found) EXPECT_NEAR(number, value, std::abs(value) * 2e-3 + 1e-6) << name;
    }
  }
}

TEST(WeightTypes, ScalesThatAreNotFiniteAreFound) {
  const std::pair<const char*, std::vector<int>> types[] = {
      {"Q8_0", {0}}, {"Q4_0", {0}}, {"Q4_K", {0, 2}}, {"Q5_K", {0, 2}}, {"Q6_K", {208}}};
  for (const auto& [name, scales] : types) {
    const WeightType& type = *weight_type(name);
    for (const int at : scales) {
      std::vector<std::byte> block = random_type_block(type, scales, 3);
      EXPECT_TRUE(is_finite_block(type.dtype, block.data())) << name;
      block[static_cast<size_t>(at) + 1] = std::byte{0x7c};
      EXPECT_FALSE(is_finite_block(type.dtype, block.data())) << name << " " << at;
    }
  }
}

TEST(WeightTypes, ABlockOfZerosHasTheScaleZero) {
  const std::vector<float> zeros(q8_block::size);
  const q8_block block = quantized(zeros.data());
  EXPECT_EQ(block.scale.bits, 0);
  EXPECT_EQ(numbers_of(block), zeros);
}

}  // namespace
}  // namespace alibi::formats
