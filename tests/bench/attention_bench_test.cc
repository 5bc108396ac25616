#include "bench/attention_bench.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bench/attention_report.h"
#include "bench/decode_bench.h"

namespace alibi::bench {
namespace {

const AttentionBenchSettings quick = {.shape = {.heads = 2, .head_dim = 16}, .seconds = 0, .memory_bytes = 1 << 20};

/// Measured once for all tests.
MatmulCeilings& shared_ceilings() {
  static MatmulCeilings measured(DType::float32);
  return measured;
}

TEST(AttentionBench, OnePointForEachTolerance) {
  AttentionBench bench(quick, DType::float32, 512, shared_ceilings());
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    const std::vector<AttentionPoint> points = bench.measure(pass, 512);
    ASSERT_EQ(points.size(), 2u);
    EXPECT_EQ(points[0].tolerance, 0);
    EXPECT_EQ(points[1].tolerance, 0x1p-24f);
    EXPECT_EQ(points[0].visited, 1);
    EXPECT_LT(points[1].visited, 1);  // two heads: slopes of 1/16 and 1/256
    for (const AttentionPoint& point : points) {
      EXPECT_GT(point.seconds, 0);
      EXPECT_LE(point.best_seconds, point.seconds);
      EXPECT_EQ(point.runs, 1);
      EXPECT_GT(point.peak_bytes, 0);
      // 512 * 513 / 2 pairs, 2 heads, 16 values: a multiplication and an addition in each of two products
      EXPECT_EQ(point.flops, 131328.0 * 2 * 16 * 4 * (pass == Pass::forward ? 1 : 3.5));
      EXPECT_GT(point.ceiling, 0);
    }
    if (pass == Pass::backward) {
      EXPECT_LT(points[0].forward_seconds, points[0].seconds);
    }
  }
}

TEST(AttentionBench, WithoutALinearBiasThereIsNothingToSkip) {
  AttentionBenchSettings settings = quick;
  for (const Position position : {Position::t5, Position::none}) {
    settings.shape.position = position;
    EXPECT_EQ(settings.tolerances_of(DType::bfloat16), std::vector<float>{0});
  }
}

TEST(AttentionBench, OtherBiasesFallToo) {
  AttentionBenchSettings settings = quick;
  for (const char* name : {"gates", "kerple", "power"}) {
    settings.shape.position = position_from(name);
    AttentionBench bench(settings, DType::float32, 2048, shared_ceilings());
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      const std::vector<AttentionPoint> points = bench.measure(pass, 2048);
      ASSERT_EQ(points.size(), 2u);
      EXPECT_EQ(points[0].visited, 1);
      if (settings.shape.position != position_from("kerple")) {  // which falls by 7 over this length
        EXPECT_LT(points[1].visited, 1) << name;
      }
    }
    DecodeBench decode(settings, DType::float32);
    for (const AttentionPoint& point : decode.measure(1024)) EXPECT_GT(point.seconds, 0);
  }
}

TEST(AttentionBench, WhatWouldTakeTooLongIsLeftOut) {
  AttentionBenchSettings settings = quick;
  settings.longest = 0;
  settings.tolerances = {0};
  AttentionBench bench(settings, DType::float32, 128, shared_ceilings());
  const std::vector<AttentionPoint> points = bench.measure(Pass::forward, 128);
  ASSERT_EQ(points.size(), 1u);
  EXPECT_TRUE(points[0].left_out());
  EXPECT_NE(table_row(points[0], 1).find("skipped"), std::string::npos);
  EXPECT_TRUE(to_json(points[0])["left_out"]);
}

TEST(AttentionBench, CapturedLayersCountEach) {
  AttentionBenchSettings settings = quick;
  settings.layers = {random_inputs(quick.shape, 192, 1), random_inputs(quick.shape, 192, 2)};
  AttentionBench bench(settings, DType::float32, 192, shared_ceilings());
  const std::vector<AttentionPoint> points = bench.measure(Pass::forward, 192);
  EXPECT_EQ(points[1].visited_each.size(), 2u);
  const auto shares = bench.visited_by_head(192);
  ASSERT_EQ(shares.size(), 2u);
  ASSERT_EQ(shares[0].size(), 2u);
  EXPECT_LE(shares[0][0], shares[0][1]);  // the steeper slope visits less
  EXPECT_THROW(AttentionBench(settings, DType::float32, 193, shared_ceilings()), std::exception);
}

TEST(DecodeBench, ReadsOnlyWhatItVisits) {
  AttentionBenchSettings settings = quick;
  DecodeBench bench(settings, DType::bfloat16);
  for (const int64_t context : {1000, 20000}) {
    const std::vector<AttentionPoint> points = bench.measure(context);
    ASSERT_EQ(points.size(), 2u);
    EXPECT_EQ(points[0].bytes_read, static_cast<double>(context) * 2 * 2 * 16 * 2);
    EXPECT_LT(points[1].bytes_read, points[0].bytes_read);
    EXPECT_GT(points[1].warm_seconds, 0);
  }
  EXPECT_GT(bench.bandwidth(), 0);
}

TEST(AttentionReport, RowsLineUpWithTheirTitles) {
  for (const Pass pass : {Pass::forward, Pass::backward, Pass::decode}) {
    const AttentionPoint point{.pass = pass,
                               .length = 1048576,
                               .tolerance = 0x1p-24f,
                               .seconds = 1.5,
                               .forward_seconds = 0.5,
                               .flops = 1e12,
                               .bytes_read = 1e9,
                               .warm_seconds = 1};
    const std::string head = table_head(pass, DType::float32);
    const std::string row = table_row(point, 2e12);
    EXPECT_EQ(head.size() - head.rfind('\n', head.size() - 2) - 1, row.size()) << head << row;
    EXPECT_NE(row.find("2^-24"), std::string::npos);
  }
}

TEST(AttentionReport, MemoryTableHasDensePointsOnly) {
  EXPECT_EQ(memory_table({}), "");
  std::vector<AttentionPoint> points(3);
  for (AttentionPoint& point : points) {
    point.pass = Pass::backward;
    point.length = 4096;
    point.peak_bytes = 8192;
  }
  points[1].tolerance = 0x1p-24f;
  points[2].expected_seconds = 9;
  const std::string table = memory_table(points);
  EXPECT_NE(table.find("2 B"), std::string::npos) << table;
  EXPECT_EQ(table.find("4096"), table.rfind("4096"));
}

}  // namespace
}  // namespace alibi::bench
