#include "bench/replay.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "alibi/runtime.h"
#include "bench/record_sections.h"
#include "bench/timing.h"
#include "bench/train_step.h"
#include "testing.h"

namespace alibi::bench {
namespace {

constexpr ReplayCosts free_of_cost = {.per_thread = 0, .per_task = 0, .patience = 1e9, .wake = 0};

const ReplayedPart& part(const Replay& replay, const std::string& name) {
  for (const ReplayedPart& candidate : replay.parts) {
    if (candidate.name == name) return candidate;
  }
  throw Error("no part " + name);
}

/// Two seconds alone, tasks of 3, 1, 2, 4 and 1 seconds, half a second alone.
const Recording by_hand = {.sections = {{.name = "loop", .serial_seconds = 2, .seconds = {3, 1, 2, 4, 1}}},
                           .serial_seconds = 0.5};

TEST(Replay, HandsTasksToTheFirstFreeThread) {
  EXPECT_EQ(by_hand.work(), 13.5);
  // One thread: all in a row. Two: 3 + 4 | 1 + 2 + 1. Three: 3 + 1 | 1 + 4 | 2, four: 3 | 1 + 1 | 2 | 4.
  const double loop[] = {11, 7, 5, 4, 4};
  for (int threads = 1; threads <= 5; ++threads) {
    const Replay replayed = replay(by_hand, threads, free_of_cost);
    EXPECT_EQ(replayed.seconds, 2.5 + loop[threads - 1]) << threads;
    EXPECT_EQ(replayed.ideal(), 13.5 / threads);
    EXPECT_EQ(replayed.share_of_ideal(), 13.5 / threads / replayed.seconds);
    EXPECT_EQ(part(replayed, "loop").seconds, loop[threads - 1]);
    EXPECT_EQ(part(replayed, "loop").work, 11);
  }
}

TEST(Replay, WhatLosesMostComesFirst) {
  const Replay replayed = replay(by_hand, 2, free_of_cost);
  ASSERT_EQ(replayed.parts.size(), 3);
  EXPECT_EQ(replayed.parts[0].name, "loop");         // 1.5
  EXPECT_EQ(replayed.parts[1].name, "before loop");  // 1
  EXPECT_EQ(replayed.parts[2].name, "at the end");   // 0.25
  double lost = 0;
  for (const ReplayedPart& each : replayed.parts) lost += replayed.lost(each);
  EXPECT_EQ(lost, replayed.seconds - replayed.ideal());
  EXPECT_EQ(replay(by_hand, 4, free_of_cost).parts[0].name, "before loop");
}

TEST(Replay, SectionsOfOneNameAreOnePart) {
  const Recording recording = {.sections = {{"a", 1, {1, 1}}, {"b", 0, {1}}, {"a", 2, {1, 1, 1}}}, .serial_seconds = 0};
  const Replay replayed = replay(recording, 2, free_of_cost);
  const ReplayedPart& a = part(replayed, "a");
  EXPECT_EQ(a.sections, 2);
  EXPECT_EQ(a.least_tasks, 2);
  EXPECT_EQ(a.most_tasks, 3);
  EXPECT_EQ(a.work, 5);
  EXPECT_EQ(a.seconds, 3);
  EXPECT_EQ(part(replayed, "before a").seconds, 3);
  EXPECT_EQ(part(replayed, "before a").most_tasks, 0);
  EXPECT_EQ(part(replayed, "b").seconds, 1) << "a single task is the calling thread's";
}

TEST(Replay, ThreadsCountThemselvesAndFallAsleep) {
  const ReplayCosts costs = {.per_thread = 0.5, .per_task = 0.25, .patience = 3, .wake = 10};
  const auto loop_after = [&](double serial, int threads) {
    const Recording recording = {.sections = {{"a", serial, {4, 4}}}, .serial_seconds = 0};
    return part(replay(recording, threads, costs), "a").seconds;
  };
  EXPECT_EQ(loop_after(3, 1), 8) << "no costs without other threads";
  EXPECT_EQ(loop_after(3, 2), 2 * 0.5 + 0.25 + 0.25 + 4);
  EXPECT_EQ(loop_after(3.5, 2), 2 * 0.5 + 10) << "the section waits until all threads have looked";
  EXPECT_EQ(loop_after(3, 64), 64 * 0.5 + 0.25 + 0.25 + 4);
  // In the second section the thread that had the short task has waited for too long.
  const Recording recording = {.sections = {{"a", 0, {4, 0}}, {"b", 0, {30, 1}}}, .serial_seconds = 0};
  EXPECT_EQ(part(replay(recording, 2, costs), "b").seconds, 1 + 0.25 + 30);
  const Recording turned = {.sections = {{"a", 0, {4, 0}}, {"b", 0, {1, 1}}}, .serial_seconds = 0};
  EXPECT_EQ(part(replay(turned, 2, costs), "b").seconds, 1 + 10);
}

TEST(Replay, TheShorterOfTwoTimesCounts) {
  Recording recording = by_hand, other = by_hand;
  other.sections[0].seconds = {4, 0.5, 2, 5, 1};
  other.sections[0].serial_seconds = 1;
  other.serial_seconds = 3;
  keep_shorter(recording, other);
  EXPECT_EQ(recording.sections[0].seconds, (std::vector<double>{3, 0.5, 2, 4, 1}));
  EXPECT_EQ(recording.sections[0].serial_seconds, 1);
  EXPECT_EQ(recording.serial_seconds, 0.5);
  other.sections[0].seconds = {5, 5, 1.5};  // 11.5, recording has 10.5
  keep_shorter(recording, other);
  EXPECT_EQ(recording.sections[0].seconds.size(), 5);
  other.sections[0].seconds = {5, 5};
  keep_shorter(recording, other);
  EXPECT_EQ(recording.sections[0].seconds, (std::vector<double>{5, 5}));
  other.sections[0].name = "another";
  EXPECT_THROW(keep_shorter(recording, other), Error);
  other.sections.clear();
  EXPECT_THROW(keep_shorter(recording, other), Error);
  EXPECT_THROW(replay(recording, 0), Error);
}

TEST(RecordSections, AStepByNames) {
  LanguageModelConfig config = preset("tiny");
  config.transformer.layers = 2;
  config.transformer.d_model = 32;
  config.transformer.heads = 4;
  TrainStep step(with_position(config, Position::alibi, 64), step_options(64, 128, 64));
  step.run();
  const auto record = [&] { return record_sections([&] { step.run(); }, step.model().parameters()); };
  const double begin = now();
  Recording recording = record();
  EXPECT_LE(recording.work(), threads() * (now() - begin));
  const auto count = [&](const std::string& text) {
    return std::count_if(recording.sections.begin(), recording.sections.end(),
                         [&](const RecordedSection& section) { return section.name.find(text) != std::string::npos; });
  };
  // Two micro-batches, two layers.
  EXPECT_EQ(count("wte y 64 x 257 x 32 compute_in_tasks:"), 2);
  EXPECT_EQ(count("wte y"), 2);
  EXPECT_EQ(count("attn.Wqkv dweight 96 x 32 x 64 "), 4);
  EXPECT_EQ(count("norm_backward:"), 2 * (2 * 2 + 1));
  for (const RecordedSection& section : recording.sections) {
    EXPECT_GE(section.serial_seconds, 0) << section.name;
    for (const double seconds : section.seconds) EXPECT_GT(seconds, 0) << section.name;
  }
  keep_shorter(recording, record());
}

}  // namespace
}  // namespace alibi::bench
