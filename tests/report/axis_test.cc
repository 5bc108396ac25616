#include "report/axis.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/random.h"
#include "report/labels.h"

namespace alibi::report {
namespace {

void expect_usable(const Axis& axis) {
  EXPECT_LT(axis.low, axis.high);
  EXPECT_FALSE(axis.ticks.empty());
  double before = -INFINITY;
  std::string label_before;
  for (const Tick& tick : axis.ticks) {
    EXPECT_GT(tick.value, before);
    before = tick.value;
    EXPECT_GE(axis.fraction(tick.value), -1e-9);
    EXPECT_LE(axis.fraction(tick.value), 1 + 1e-9);
    if (tick.label.empty()) continue;
    EXPECT_NE(tick.label, label_before);
    label_before = tick.label;
  }
}

TEST(Axis, AnyRangeGivesDistinctTicksInside) {
  const core::Random random(1);
  for (uint64_t i = 0; i < 500; ++i) {
    const double low = std::exp(12.0 * random.uniform(3 * i) - 4);
    const double high = low * std::exp(std::pow(10.0, 3 * random.uniform(3 * i + 1) - 2));
    SCOPED_TRACE(::testing::Message() << low << " to " << high);
    const Axis axis = value_axis(low, high);
    EXPECT_EQ(axis.logarithmic, high > 4 * low);
    EXPECT_LE(axis.low, low);
    EXPECT_GE(axis.high, high);
    EXPECT_GE(axis.ticks.size(), 2u);
    expect_usable(axis);
  }
}

TEST(Axis, OneValueIsARangeToo) {
  for (const double value : {0.0, 5.75, 1e6}) expect_usable(linear_axis(value, value));
  expect_usable(logarithmic_axis(3, 3));
  expect_usable(length_axis({128}, 128, 500));
  EXPECT_LT(length_axis({}, 128, 500).low, length_axis({}, 128, 500).high);
}

TEST(Axis, LabelsHaveTheDigitsOfTheirSteps) {
  const auto labels = [](const Axis& axis) {
    std::vector<std::string> all;
    for (const Tick& tick : axis.ticks) all.push_back(tick.label);
    return all;
  };
  EXPECT_EQ(labels(linear_axis(0, 10)), (std::vector<std::string>{"0", "2", "4", "6", "8", "10"}));
  EXPECT_EQ(labels(linear_axis(0, 10, 4)), (std::vector<std::string>{"0.0", "2.5", "5.0", "7.5", "10.0"}));
  EXPECT_EQ(labels(linear_axis(0, 1)), (std::vector<std::string>{"0.0", "0.2", "0.4", "0.6", "0.8", "1.0"}));
  EXPECT_EQ(labels(linear_axis(0, 0.1, 4)), (std::vector<std::string>{"0.000", "0.025", "0.050", "0.075", "0.100"}));
  EXPECT_EQ(labels(linear_axis(5.1, 5.9)), (std::vector<std::string>{"5.2", "5.4", "5.6", "5.8"}));
}

TEST(Axis, ZeroHasNoSign) {
  for (const Tick& tick : linear_axis(0, 1).ticks) EXPECT_NE(tick.label[0], '-');
}

TEST(Axis, LengthLabelsDoNotCollideAndTheImportantOnesStay) {
  const std::vector<int64_t> lengths = {128, 136, 144, 160, 192, 224, 256, 300, 384, 512, 768, 1024, 1536, 2048};
  const Axis axis = length_axis(lengths, 256, 400);
  ASSERT_EQ(axis.ticks.size(), lengths.size());
  const auto label_of = [&](double value) {
    return std::find_if(axis.ticks.begin(), axis.ticks.end(), [&](const Tick& t) { return t.value == value; })->label;
  };
  EXPECT_EQ(label_of(256), "256");
  EXPECT_EQ(label_of(2048), "2,048");
  EXPECT_EQ(label_of(128), "128");
  double right = -INFINITY;
  for (const Tick& tick : axis.ticks) {
    if (tick.label.empty()) continue;
    const double half = text_width(tick.label, 12) / 2, at = 400 * axis.fraction(tick.value);
    EXPECT_GE(at - half, right) << tick.label;
    right = at + half;
  }
}

TEST(Labels, SpreadKeepsDistanceAndMovesLittle) {
  const core::Random random(7);
  for (uint64_t round = 0; round < 200; ++round) {
    std::vector<double> wanted;
    const uint64_t count = 1 + random.below(2 * round, 8);
    for (uint64_t i = 0; i < count; ++i) wanted.push_back(300 * random.uniform(100 + 16 * round + i));
    const std::vector<double> placed = spread(wanted, 17, 0, 300);
    std::vector<double> sorted = placed;
    std::sort(sorted.begin(), sorted.end());
    for (size_t i = 0; i + 1 < sorted.size(); ++i) EXPECT_GE(sorted[i + 1] - sorted[i], 17 - 1e-9);
    EXPECT_GE(sorted.front(), -1e-9);
    EXPECT_LE(sorted.back(), 300 + 1e-9);
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_LE(std::abs(placed[i] - wanted[i]), 17.0 * static_cast<double>(wanted.size()));
      for (size_t j = 0; j < wanted.size(); ++j) {
        EXPECT_TRUE(wanted[i] >= wanted[j] || placed[i] < placed[j]);
      }
    }
  }
  EXPECT_EQ(spread({10, 100}, 17, 0, 300), (std::vector<double>{10, 100}));
  EXPECT_EQ(spread({50, 50}, 20, 0, 300), (std::vector<double>{40, 60}));
}

TEST(Labels, CrossesAgreesWithSamples) {
  const core::Random random(3);
  const Box box{20, 30, 70, 60};
  int hits = 0;
  for (uint64_t i = 0; i < 500; ++i) {
    const auto coordinate = [&](uint64_t k) { return 100.0 * random.uniform(4 * i + k); };
    const SvgPoint a{coordinate(0), coordinate(1)}, b{coordinate(2), coordinate(3)};
    double depth = -INFINITY;  // how far inside the box the line gets
    for (int s = 0; s <= 1000; ++s) {
      const double t = s / 1000.0, x = a.x + t * (b.x - a.x), y = a.y + t * (b.y - a.y);
      depth = std::max(depth, std::min({x - box.left, box.right - x, y - box.top, box.bottom - y}));
    }
    if (std::abs(depth) < 0.2) continue;  // too close for sampling to tell
    EXPECT_EQ(crosses(box, a, b), depth > 0);
    hits += depth > 0;
  }
  EXPECT_GT(hits, 50);
}

TEST(Labels, PlaceNearAvoidsLinesAndBoxes) {
  const Box frame{0, 0, 400, 300};
  const std::vector<std::vector<SvgPoint>> lines = {{{0, 150}, {400, 150}}, {{0, 280}, {400, 20}}};
  std::vector<Box> taken;
  for (int i = 0; i < 4; ++i) {
    const Box box = place_near({100, 150}, 120, 16, frame, lines, taken);
    EXPECT_TRUE(frame.contains(box));
    for (const auto& line : lines) EXPECT_FALSE(crosses(box, line[0], line[1]));
    for (const Box& other : taken) EXPECT_FALSE(box.overlaps(other));
    taken.push_back(box);
  }
}

}  // namespace
}  // namespace alibi::report
