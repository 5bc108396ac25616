#include "report/attention_chart.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "report/markup_check.h"

namespace alibi::report {
namespace {

AttentionMap sample_map(int layers, int heads) {
  AttentionMap map;
  map.length = 64;
  map.distances = {0, 1, 2, 4, 8, 49};
  for (int layer = 0; layer < layers; ++layer) {
    for (int head = 0; head < heads; ++head) {
      HeadAttention one{layer, head, std::exp2(-head), {0.5, 0.2, 1e-9, NAN, 0.1}, {0.4, 0.3, 0.1, 1e-3, 0}};
      map.heads.push_back(one);
    }
  }
  return map;
}

size_t times_in(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(AttentionChart, HasAPanelForEachHeadUpToEight) {
  const std::string drawn = draw_attention(sample_map(2, 3), "alibi", print_theme(), true);
  EXPECT_NO_THROW(testing::read_markup(drawn));
  EXPECT_EQ(times_in(drawn, "layer 1, head"), 3u);
  EXPECT_EQ(times_in(drawn, "layer 2, head"), 3u);
  EXPECT_NE(drawn.find(": 2^-2"), std::string::npos);
  EXPECT_EQ(drawn.find("nan"), std::string::npos);
  const std::string many = draw_attention(sample_map(24, 1), "alibi", print_theme(), false);
  EXPECT_EQ(times_in(many, "head 1: 2^0"), 8u);
  EXPECT_NE(many.find("layer 24, head 1"), std::string::npos);
}

TEST(AttentionChart, NothingMeasuredIsNothingDrawn) { EXPECT_EQ(draw_attention({}, "alibi", print_theme(), true), ""); }

}  // namespace
}  // namespace alibi::report
