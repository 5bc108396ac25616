#include "report/html.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <set>
#include <sstream>

#include "alibi/error.h"
#include "core/files.h"
#include "report/figures.h"
#include "report/json.h"
#include "report/markup.h"
#include "report/markup_check.h"
#include "report/sample_results.h"
#include "report/verdict.h"

namespace alibi::report {
namespace {

using testing::Element;
using testing::read_markup;

TEST(ReportPage, IsWellFormedWithUniqueIds) {
  for (const CompareResults& results :
       {testing::sample_results(), testing::sample_results({{"learned", 5, 0}}), CompareResults{}}) {
    const std::string page = report_html(results);
    std::vector<Element> elements;
    ASSERT_NO_THROW(elements = read_markup(page, true));
    std::set<std::string> ids;
    for (const Element& element : elements) {
      const auto id = element.attributes.find("id");
      EXPECT_TRUE(id == element.attributes.end() || ids.insert(id->second).second) << id->second;
    }
    for (const Element& element : elements) {
      const auto labels = element.attributes.find("aria-labelledby");
      if (labels == element.attributes.end()) continue;
      std::istringstream words(labels->second);
      for (std::string id; words >> id;) EXPECT_TRUE(ids.count(id)) << id;
    }
  }
}

TEST(ReportPage, NeedsNothingButItself) {
  const std::string page = report_html(testing::sample_results());
  for (const Element& element : read_markup(page, true)) {
    EXPECT_NE(element.name, "script");
    EXPECT_NE(element.name, "link");
    EXPECT_FALSE(element.attributes.count("src"));
    EXPECT_FALSE(element.attributes.count("href"));
    EXPECT_FALSE(element.attributes.count("onclick"));
  }
  EXPECT_EQ(page.find("url("), std::string::npos);
  EXPECT_EQ(page.find("@import"), std::string::npos);
}

TEST(ReportPage, ShowsVerdictNumbersAndHowToRepeatIt) {
  const CompareResults results = testing::sample_results();
  const std::string page = report_html(results);
  EXPECT_NE(page.find("alibi has the lowest perplexity, 5.620"), std::string::npos);
  EXPECT_NE(page.find(escape_markup(results.command)), std::string::npos);
  EXPECT_NE(page.find(results.machine), std::string::npos);
  EXPECT_NE(page.find("0.002, cosine to 0.0002"), std::string::npos);
  EXPECT_NE(page.find("<dt>Tokenizer</dt><dd>bpe <span>8,192 different tokens</span></dd>"), std::string::npos);
  EXPECT_NE(page.find("Perplexity of bpe tokens of held-out text"), std::string::npos);
  EXPECT_NE(page.find("early token"), std::string::npos);
  EXPECT_NE(page.find("positions up to 128"), std::string::npos) << "the reason of a gap";
  // The figure in which every length scores the same tokens comes before the one of positions.
  EXPECT_LT(page.find("id=\"context-heading\""), page.find("id=\"positions-heading\""));
}

TEST(ReportPage, AMethodThatHasNotLearnedIsCalledSoAndNotPraised) {
  CompareResults results = testing::sample_results({{"alibi", 5.75, 0.3}, {"sinusoidal", 11, 0}});
  results.held_out.bigram_nll = std::log(11.2);
  const std::string page = report_html(results);
  EXPECT_NE(page.find("sinusoidal (11.00) has not learned yet"), std::string::npos);
  EXPECT_NE(page.find("Train longer, with more --train-tokens"), std::string::npos);
  EXPECT_EQ(page.find("sinusoidal has the lowest"), std::string::npos);
  EXPECT_EQ(page.find("sinusoidal stays level"), std::string::npos);
}

TEST(ReportPage, SpeedIsShownOnlyIfItWasMeasured) {
  CompareResults results = testing::sample_results();
  std::string page = report_html(results);
  EXPECT_NE(page.find(">Memory</h2>"), std::string::npos);
  for (const char* speed : {"Speed and memory", "okens per second"}) EXPECT_EQ(page.find(speed), std::string::npos);
  results.speed = {{"alibi", false, {{"train", 128, 1234, 1620.4, 1.05, 3}}}};
  page = report_html(results);
  for (const char* speed : {">Speed and memory</h2>", "okens per second"}) {
    EXPECT_NE(page.find(speed), std::string::npos) << speed;
  }
}

TEST(ReportPage, SentencesOfTrainedModelsNeedTrainedModels) {
  CompareResults results = testing::sample_results({{"alibi", 5, 0}, {"rotary", 6, 0}});
  AttentionMap& map = results.methods[0].attention;
  map.length = 256;
  map.distances = {0, 1, 2, 4};
  map.heads = {{0, 0, 0.5, {0.4, 0.3, 0.2, 0.1}, {0.4, 0.3, 0.2, 0.1}}};
  const auto has = [&](const char* text) { return report_html(results).find(text) != std::string::npos; };
  EXPECT_TRUE(has("the model has learned which keys to prefer"));
  EXPECT_TRUE(has("their loss is high: 2.75 nats at positions 1 to 4 and 1.58 after them with alibi."))
      << "see sample_run()";
  EXPECT_TRUE(has(">Loss by position: the early token curse</h2>"));
  std::vector<double>& nll = results.methods[1].per_position_nll;
  nll[0] = nll[1] = 0;  // the first positions are the lowest of a method
  EXPECT_FALSE(has("the early token curse</h2>"));
  EXPECT_FALSE(has("their loss is high"));
  EXPECT_TRUE(has(">Loss by position</h2>"));
  results.held_out.bigram_nll = std::log(4.0);
  EXPECT_FALSE(has("has learned which keys to prefer"));
  EXPECT_TRUE(has("This model has not learned yet"));
}

TEST(ReportPage, SettingsAreNotSaidTwice) {
  CompareResults results = testing::sample_results();
  results.settings.emplace_back("seed", "from the settings");
  size_t seeds = 0;
  for (const Element& element : read_markup(report_html(results), true)) {
    seeds += element.name == "th" && (element.text == "Seed" || element.text == "seed");
  }
  EXPECT_EQ(seeds, 1u);
}

TEST(ReportPage, TextFromOutsideCannotBecomeMarkup) {
  CompareResults results = testing::sample_results();
  const std::string bad = "</style><script>alert(\"1\")</script>&<!--";
  results.corpus_name = results.command = results.machine = results.version = results.preset = results.started = bad;
  results.tokenizer = bad;
  results.settings = {{bad, bad}};
  for (MethodResults& method : results.methods) {
    method.name = method.sample = method.sample_prompt = method.sample_note = method.model_folder = bad;
    method.evaluations.back().gap = bad;
  }
  const std::string page = report_html(results);
  EXPECT_NO_THROW(read_markup(page, true));
  EXPECT_EQ(page.find("<script"), std::string::npos);
  EXPECT_EQ(page.find("<!--"), std::string::npos);
}

TEST(ReportPage, ComparesOnlyMethodsThatHaveLearned) {
  CompareResults results = testing::sample_results({{"alibi", 5, 0}, {"rotary", 6, 0}});
  EXPECT_NE(report_html(results).find("Differences between methods"), std::string::npos);
  results.held_out.bigram_nll = std::log(4.0);  // below both: neither has learned
  EXPECT_EQ(report_html(results).find("Differences between methods"), std::string::npos);
}

TEST(ReportPage, MarksWhereASampleLeavesTheTrainingLength) {
  CompareResults results = testing::sample_results({{"alibi", 5, 0}});
  MethodResults& method = results.methods[0];
  method.sample_prompt = "Call me";
  method.sample = std::string(121 - 1, 'a') + "\xC3\xA9" + "past";  // byte 128 is the second one of the accented e
  const std::string marker = "<span class=\"passed\">";
  std::string page = report_html(results);
  size_t at = page.find(marker);
  ASSERT_NE(at, std::string::npos);
  EXPECT_EQ(page.substr(at - 10, 10), "a\xC3\xA9</span>");
  EXPECT_NE(page.find("<span class=\"prompt\">Call me</span>"), std::string::npos);
  EXPECT_NE(page.find("<span class=\"past\">past</span>"), std::string::npos);

  method.sample_bytes_at_train_length = 3;  // a tokenizer with tokens of several bytes, and a long prompt
  page = report_html(results);
  EXPECT_NE(page.find("<span class=\"prompt\">Cal</span>" + marker), std::string::npos);
  EXPECT_NE(page.find("<span class=\"past prompt\">l me</span>"), std::string::npos);

  method.sample = "short";
  method.sample_bytes_at_train_length = -1;
  EXPECT_EQ(report_html(results).find(marker), std::string::npos);
}

TEST(ReportPage, IsTheSameAfterAReadingOfTheJson) {
  CompareResults results = testing::sample_results();
  for (MethodResults& method : results.methods) method.sample = method.runs[0].sample = "text";
  EXPECT_EQ(report_html(results_from_json(to_json(results))), report_html(results));
}

TEST(WriteReport, WritesItsFiles) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "alibi_report_test" / "deep";
  std::filesystem::remove_all(folder);
  const CompareResults results = testing::sample_results();
  write_report(results, folder);
  EXPECT_EQ(core::read_file(folder / "results.json"), to_json(results));
  EXPECT_EQ(core::read_file(folder / "figure.svg"), figure_svg(results));
  EXPECT_EQ(core::read_file(folder / "report.html"), report_html(results));
  EXPECT_EQ(core::read_file(folder / "figure.csv"), figure_csv(results));
  EXPECT_THROW(write_report(results, folder / "report.html"), Error);
  std::filesystem::remove_all(folder.parent_path());
}

}  // namespace
}  // namespace alibi::report
