#include "train/metrics.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "formats/json.h"
#include "formats/tensorboard.h"
#include "temporary_folder.h"

namespace alibi::training {
namespace {

namespace fs = std::filesystem;

TrainStatus status_of(int64_t step) {
  TrainStatus status;
  status.step = step;
  status.tokens = 100 * step;
  status.loss = 1.0 / static_cast<double>(step);
  status.learning_rate = 0.5;
  status.gradient_norm = 2;
  status.tokens_per_second = 1000;
  status.seconds = 0.1 * static_cast<double>(step);
  status.memory_bytes = 1 << 20;
  if (step % 2 == 0) status.valid_loss = 3;
  return status;
}

std::vector<formats::Json> lines(const test::TemporaryFolder& folder) {
  std::ifstream file(folder / "metrics.jsonl");
  std::vector<formats::Json> result;
  for (std::string line; std::getline(file, line);) result.push_back(formats::Json::parse(line));
  return result;
}

/// Steps of the events in the one event file there is, the header left out. Every record's checksums are right.
std::vector<int64_t> event_steps(const test::TemporaryFolder& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder / "tensorboard")) files.push_back(entry.path());
  EXPECT_EQ(files.size(), 1u);
  const std::string content = core::read_file(files.at(0));
  std::vector<int64_t> steps;
  for (size_t at = 0; at < content.size();) {
    const auto word = [&](size_t place) {
      uint32_t value = 0;
      for (size_t i = 0; i < 4; ++i) value |= uint32_t{static_cast<uint8_t>(content.at(place + i))} << (8 * i);
      return value;
    };
    const auto masked = [](std::string_view bytes) {
      const uint32_t crc = formats::crc32c(bytes);
      return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
    };
    const size_t size = word(at);
    EXPECT_EQ(word(at + 8), masked(std::string_view(content).substr(at, 8)));
    const std::string_view event = std::string_view(content).substr(at + 12, size);
    EXPECT_EQ(word(at + 12 + size), masked(event));
    if (at > 0) steps.push_back(event.at(10));  // behind key, time and key; a varint of one byte below 128
    at += 16 + size;
  }
  return steps;
}

TEST(Metrics, ALineAndAnEventForEachStep) {
  const test::TemporaryFolder folder;
  Metrics metrics(folder.path(), 0);
  for (int64_t step = 1; step <= 3; ++step) metrics.add(status_of(step));
  const std::vector<formats::Json> found = lines(folder);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[1]["step"], 2);
  EXPECT_EQ(found[1]["tokens"], 200);
  EXPECT_EQ(found[1]["loss"], 0.5);
  EXPECT_EQ(found[1]["perplexity"], std::exp(0.5));
  EXPECT_EQ(found[1]["valid_loss"], 3);
  EXPECT_FALSE(found[0].contains("valid_loss"));
  for (const char* key : {"learning_rate", "gradient_norm", "tokens_per_second", "seconds", "memory_bytes", "time"}) {
    EXPECT_TRUE(found[0].contains(key)) << key;
  }
  EXPECT_EQ(event_steps(folder), (std::vector<int64_t>{1, 2, 3}));
}

TEST(Metrics, EventsHoldTheNumbersOfTheLineInTheirUnits) {
  const test::TemporaryFolder folder;
  Metrics metrics(folder.path(), 0);
  metrics.add(status_of(2));
  std::string content;
  for (const auto& entry : fs::directory_iterator(folder / "tensorboard")) content = core::read_file(entry.path());
  const auto value_of = [&](const std::string& tag) {
    const size_t at = content.find(tag);
    EXPECT_NE(at, std::string::npos) << tag;
    float value = 0;  // behind the tag: a key of one byte, four bytes
    std::memcpy(&value, content.data() + at + tag.size() + 1, sizeof value);
    return value;
  };
  EXPECT_EQ(value_of("train/loss"), 0.5f);
  EXPECT_EQ(value_of("train/perplexity"), std::exp(0.5f));
  EXPECT_EQ(value_of("train/learning_rate"), 0.5f);
  EXPECT_EQ(value_of("train/gradient_norm"), 2);
  EXPECT_EQ(value_of("speed/tokens_per_second"), 1000);
  EXPECT_EQ(value_of("memory/GiB"), 0x1p-10f);
  EXPECT_EQ(value_of("valid/loss"), 3);
  EXPECT_EQ(value_of("valid/perplexity"), static_cast<float>(std::exp(3.0)));
}

TEST(Metrics, ContinueAfterAStepWithoutThoseThatCameLater) {
  const test::TemporaryFolder folder;
  {
    Metrics metrics(folder.path(), 0);
    for (int64_t step = 1; step <= 5; ++step) metrics.add(status_of(step));
  }
  std::ofstream(folder / "metrics.jsonl", std::ios::app) << R"({"step": 6, "lo)";
  {
    Metrics metrics(folder.path(), 3);
    metrics.add(status_of(4));
    metrics.sync();
  }
  std::vector<int64_t> steps;
  for (const formats::Json& line : lines(folder)) steps.push_back(line["step"].get<int64_t>());
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 3, 4}));
  EXPECT_EQ(event_steps(folder), steps);
  const Metrics fresh(folder.path(), 0);
  EXPECT_TRUE(lines(folder).empty());
  EXPECT_TRUE(event_steps(folder).empty());
}

TEST(Metrics, ALineThatRepeatsAStepAndWhatFollowsAreLeftOut) {
  const test::TemporaryFolder folder;
  std::string content;
  for (const int step : {1, 2, 2, 3})
    content += fmt::format("{{\"step\": {}, \"time\": 1, \"loss\": {}}}\n", step, step);
  folder.write("metrics.jsonl", content);
  const Metrics metrics(folder.path(), 10);
  EXPECT_EQ(lines(folder).size(), 2u);
  EXPECT_EQ(event_steps(folder), (std::vector<int64_t>{1, 2}));
}

TEST(Metrics, WhatStandsInTheFileIsNoDanger) {
  for (const char* content :
       {"", "\n", "[]\n", "{\"step\": \"x\"}\n", "{\"step\": 1}\n", "{\"step\": 1, \"time\": []}\n", "\xff\xfe\n",
        "{\"step\": 1e400, \"time\": 1}\n", "{\"step\": -4, \"time\": 1}\n"}) {
    const test::TemporaryFolder folder;
    folder.write("metrics.jsonl", content);
    Metrics metrics(folder.path(), 10);
    metrics.add(status_of(11));
    EXPECT_EQ(lines(folder).size(), 1u) << content;
  }
}

}  // namespace
}  // namespace alibi::training
