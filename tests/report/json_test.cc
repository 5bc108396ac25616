#include "report/json.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "report/html.h"
#include "report/sample_results.h"
#include "testing.h"

namespace alibi::report {
namespace {

using nlohmann::json;

TEST(ReportJson, HasTheDocumentedKeys) {
  const json file = json::parse(to_json(testing::sample_results()));
  for (const char* key : {"train_length", "seed", "threads", "preset", "parameters", "corpus", "methods", "version",
                          "machine", "command", "settings"}) {
    EXPECT_TRUE(file.contains(key)) << key;
  }
  EXPECT_EQ(file["train_length"], 128);
  EXPECT_EQ(file["corpus"]["train_bytes"], 9'812'345);
  EXPECT_EQ(file["corpus"]["valid_bytes"], 1'048'576);
  ASSERT_EQ(file["methods"].size(), 6u);
  const json& alibi = file["methods"][0];
  EXPECT_EQ(alibi["name"], "alibi");
  for (const char* key : {"tokens", "seconds", "tokens_per_second", "peak_bytes", "loss", "loss_tokens"}) {
    EXPECT_TRUE(alibi["train"].contains(key)) << key;
  }
  ASSERT_TRUE(alibi["train"]["loss"][0].is_number());
  EXPECT_EQ(alibi["train"]["loss"].size(), alibi["train"]["loss_tokens"].size());
  for (const char* key : {"length", "stride", "tokens", "nll", "perplexity", "bits_per_byte", "tokens_per_second"}) {
    EXPECT_TRUE(alibi["eval"][0].contains(key)) << key;
    EXPECT_TRUE(alibi["eval"][0][key].is_number()) << key;
  }
  EXPECT_FALSE(alibi["eval"][0].contains("error"));
  EXPECT_EQ(alibi["per_position"]["length"], 1024);
  EXPECT_EQ(alibi["per_position"]["nll"].size(), 1024u);
}

TEST(ReportJson, AGapHasAnErrorAndNoNumbers) {
  const json file = json::parse(to_json(testing::sample_results()));
  const json& gap = file["methods"][4]["eval"][1];
  EXPECT_EQ(gap["length"], 160);
  EXPECT_TRUE(gap["perplexity"].is_null());
  EXPECT_TRUE(gap["nll"].is_null());
  EXPECT_NE(gap["error"].get<std::string>().find("positions up to 128"), std::string::npos);
}

TEST(ReportJson, NumbersThatAreNotFiniteAreNull) {
  EvaluationPoint point;
  point.length = 7;
  point.nll = NAN;
  point.perplexity = INFINITY;
  const json converted = to_json(point);  // also a plain, sorted json
  EXPECT_TRUE(converted["nll"].is_null());
  EXPECT_TRUE(converted["perplexity"].is_null());
  json array = json::array();
  array.push_back(json(to_json(point)));
  EXPECT_EQ(array[0]["length"], 7);
}

TEST(ReportJson, ReadsWhatItWrote) {
  CompareResults results = testing::sample_results();
  results.seed = ~0ull;
  // In the run, and in the mean of this one run.
  const auto both = [&](size_t i, const auto& change) {
    change(static_cast<RunResults&>(results.methods[i]));
    change(results.methods[i].runs[0]);
  };
  both(0, [](RunResults& run) { run.loss[3].loss = NAN; });
  both(1, [](RunResults& run) { run.per_position_nll[5] = NAN; });
  both(2, [](RunResults& run) { run.evaluations[8].perplexity = NAN; });
  for (MethodResults& method : results.methods) method.sample = method.runs[0].sample = "plain \"text\"\n\xE2\x82\xAC";
  results.speed = {{"alibi", true, {{"train", 128, 1e4, 200, 1.25, 3}, {"eval", 2048, NAN, NAN, NAN, 0}}}};
  both(0, [](RunResults& run) {
    run.attention = {512, {0, 1, 2}, {{0, 0, NAN, {0.25, 0.125}, {0.5, 0.25}}, {0, 1, 0.5, {0.5, NAN}, {1, 0}}}};
  });
  results.held_out.bigram_nll = 2.5;
  const std::string text = to_json(results);
  const CompareResults read = results_from_json(text);
  EXPECT_EQ(read.held_out.bigram_nll, 2.5);
  EXPECT_EQ(read.methods[0].attention.heads[1].slope, 0.5);
  EXPECT_EQ(read.methods[0].attention.distances, (std::vector<int64_t>{0, 1, 2}));
  EXPECT_TRUE(read.speed[0].all_keys);
  EXPECT_EQ(read.speed[0].points[0].cpu_seconds, 200);
  EXPECT_EQ(to_json(read), text);
  EXPECT_EQ(read.seed, ~0ull);
  EXPECT_EQ(read.settings, results.settings);
  EXPECT_EQ(read.tokenizer, "bpe");
  EXPECT_EQ(read.vocab_size, 8192);
  ASSERT_EQ(read.methods.size(), results.methods.size());
  EXPECT_TRUE(std::isnan(read.methods[0].loss[3].loss));
  EXPECT_EQ(read.methods[0].loss[4].loss, results.methods[0].loss[4].loss);
  EXPECT_EQ(read.methods[0].loss[4].step, results.methods[0].loss[4].step);
  EXPECT_TRUE(std::isnan(read.methods[1].per_position_nll[5]));
  EXPECT_TRUE(std::isnan(read.methods[2].evaluations[8].perplexity));
  EXPECT_EQ(read.methods[4].evaluations[1].gap, results.methods[4].evaluations[1].gap);
  EXPECT_EQ(read.methods[0].sample, results.methods[0].sample);
  EXPECT_EQ(read.methods[0].sample_bytes_at_train_length, -1);
}

TEST(ReportJson, AnyBytesGiveValidText) {
  CompareResults results = testing::sample_results();
  results.methods[0].sample = std::string("\xFF\x00\xC3", 3);
  results.corpus_name = "caf\xE9";
  const CompareResults read = results_from_json(to_json(results));
  EXPECT_EQ(read.corpus_name, "caf\xEF\xBF\xBD");
}

TEST(ReportJson, ArraysOfNumbersTakeOneLine) {
  const std::string text = to_json(testing::sample_results());
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 2000);
  EXPECT_EQ(text.back(), '\n');
}

TEST(ReportJson, DamagedFilesNameTheKey) {
  const auto expect_refused = [](const std::string& text, const std::string& why) {
    test::expect_error([&] { results_from_json(text, "folder/results.json"); }, why);
    test::expect_error([&] { results_from_json(text, "folder/results.json"); }, "folder/results.json");
  };
  expect_refused("", "is truncated: it ends in line 1");
  expect_refused("{\"train_length\": 1,\n\n", "is truncated: it ends in line 3");
  expect_refused("{\"train_length\": 1,\n  x}", "is not valid JSON: syntax error in line 2, column 3");
  expect_refused("{\"train_length\": \"\xFF\"}", "is not valid JSON: syntax error in line 1, column 19");
  expect_refused("{\"seconds\": 1e999}", "contains a number outside the range of a double");
  for (const char* text : {"", "{]", "{\"seconds\": 1e999}"}) {  // none of the library's own words
    const std::string message = test::message_of<Error>([&] { results_from_json(text, "f"); });
    EXPECT_EQ(message.find("json.exception"), std::string::npos) << message;
    EXPECT_EQ(message.find("parse"), std::string::npos) << message;
  }
  expect_refused("[]", "expected an object");
  expect_refused("{\"train_length\": \"x\"}", "results.train_length");
  expect_refused("{\"train_length\": 1.5}", "expected an integer");
  expect_refused("{\"train_length\": 9223372036854775808}", "expected an integer of 64 bits");
  expect_refused("{\"train_length\": 0}", "results.train_length is 0, expected 1 to");
  expect_refused("{\"train_length\": 1, \"runs\": 3}", "results.runs");
  const auto with_run = [](const std::string& more) {
    return "{\"train_length\": 1, \"runs\": [{\"method\": \"a\", \"seed\": 0, " + more + "}]}";
  };
  expect_refused(with_run("\"eval\": [{\"length\": 1, \"nll\": \"x\"}]"), "results.runs[0].eval[0].nll");
  expect_refused(with_run("\"train\": {\"loss\": [1, 2], \"loss_tokens\": [1]}"), "results.runs[0].train.loss_tokens");
  expect_refused("{\"train_length\": 1}", "results.runs is missing");
  EXPECT_NO_THROW(results_from_json("{\"train_length\": 1, \"runs\": []}"));
}

json full_results() {
  CompareResults results = testing::sample_results({{"alibi", 5.751, 0.002}});
  RunResults& run = results.methods[0].runs[0];
  run.attention = {512, {0, 1, 2}, {{0, 0, 0.5, {0.25, 0.125}, {0.5, 0.25}}}};
  results.speed = {{"alibi", true, {{"train", 128, 1e4, 200, 1.25}}}};
  results.held_out = {100, {40, 60}, {{"a.txt", 100, 100}}, NAN};
  return json::parse(to_json(results));
}

TEST(ReportJson, WhatAReportNeedsMustBeThere) {
  const json full = full_results();
  ASSERT_NO_THROW(results_from_json(full.dump()));
  for (const char* path :
       {"/train_length", "/runs", "/runs/0/method", "/runs/0/seed", "/runs/0/train_length", "/runs/0/eval/2/length",
        "/runs/0/eval/2/nll", "/runs/0/eval/2/perplexity", "/runs/0/context/1/context", "/runs/0/context/1/nll",
        "/runs/0/attention/heads/0/layer", "/runs/0/attention/heads/0/head", "/runs/0/attention/heads/0/weight",
        "/speed/0/method", "/speed/0/points/0/work", "/speed/0/points/0/length",
        "/speed/0/points/0/tokens_per_second"}) {
    json damaged = full;
    const json::json_pointer pointer(path);
    damaged[pointer.parent_pointer()].erase(pointer.back());
    if (std::string_view(path) == "/runs") damaged.erase("methods");
    test::expect_error([&] { results_from_json(damaged.dump(), "f.json"); }, pointer.back() + " is missing");
    test::expect_error([&] { results_from_json(damaged.dump(), "f.json"); }, "f.json");
  }
}

/// Every value of the file in turn becomes one of every other kind: refused with the file's name, or taken and drawn.
TEST(ReportJson, ValuesOfAnyWrongKindAreRefusedOrDrawn) {
  json full = full_results();
  full["methods"] = json::array();  // not read where there are runs
  full.erase("report");             // never read
  full["runs"][0]["train"]["loss"] = full["runs"][0]["train"]["loss_tokens"] = {1, 2};
  full["runs"][0]["train"]["loss_steps"] = {1, 2};
  full["runs"][0]["per_position"]["nll"] = {4, 3};
  for (const char* key : {"eval", "context"})
    full["runs"][0][key].erase(full["runs"][0][key].begin() + 2, full["runs"][0][key].end());
  const json flat = full.flatten();
  int refused = 0;
  for (const auto& [path, value] : flat.items()) {
    for (const json& other :
         {json(nullptr), json(true), json(-1), json(1.5), json("text"), json::array({json::object()}),
          json::object({{"a", 1}}), json(~0ull), json(INT64_MAX), json(1e300)}) {
      json damaged = full;
      damaged[json::json_pointer(path)] = other;
      SCOPED_TRACE(path + " = " + other.dump());
      CompareResults results;
      try {
        results = results_from_json(damaged.dump(), "f.json");
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("f.json"), std::string::npos) << error.what();
        EXPECT_EQ(std::string(error.what()).find("exception"), std::string::npos) << error.what();
        ++refused;
        continue;
      }
      std::string page;
      ASSERT_NO_THROW(page = report_html(results));
      EXPECT_LT(page.size(), 400'000u);
      EXPECT_EQ(page.find(">nan"), std::string::npos);
    }
  }
  EXPECT_GT(refused, static_cast<int>(3 * flat.size()));
}

}  // namespace
}  // namespace alibi::report
