#include "report/html.h"

#include <gtest/gtest.h>

#include <algorithm>
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
#include "report/tables.h"
#include "report/theme.h"
#include "temporary_folder.h"

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

/// The text of the element with this id.
std::string text_of(const std::string& page, const std::string& id) {
  for (const Element& element : read_markup(page, true)) {
    if (const auto own = element.attributes.find("id"); own != element.attributes.end() && own->second == id) {
      return element.text;
    }
  }
  return "";
}

TEST(ReportPage, NeedsNothingButItself) {
  const std::string page = report_html(testing::sample_results());
  for (const Element& element : read_markup(page, true)) {
    EXPECT_FALSE(element.attributes.count("src"));
    EXPECT_FALSE(element.attributes.count("href") && element.attributes.at("href") != "data:,");
    EXPECT_FALSE(element.attributes.count("onclick"));
  }
  for (const char* loads : {"url(", "@import", "fetch(", "import("}) EXPECT_EQ(page.find(loads), std::string::npos);
}

TEST(ReportPage, ShowsVerdictFigureAndTextWithoutScripts) {
  const CompareResults results = testing::sample_results();
  const std::string page = report_html(results), seen = page.substr(0, page.find("<script"));
  EXPECT_NE(seen.find("alibi has the lowest perplexity, 5.620"), std::string::npos);
  EXPECT_NE(seen.find(draw(perplexity_chart(results), page_theme(), false)), std::string::npos);
  EXPECT_NE(seen.find("--alibi: #D55E00; --alibi-text: #B34F00;"), std::string::npos);
  EXPECT_NE(seen.find(escape_markup(comparison_text(results))), std::string::npos);
  EXPECT_NE(seen.find("(once, from seed 1)"), std::string::npos);
}

TEST(ReportPage, ContainsTheResults) {
  for (const CompareResults& results : {testing::sample_results(), CompareResults{}}) {
    const std::string text = text_of(report_html(results), "results");
    EXPECT_EQ(nlohmann::json::parse(text), nlohmann::json::parse(to_json(results)));
    EXPECT_EQ(text.find('<'), std::string::npos);
  }
}

TEST(ReportPage, TextFromOutsideCannotBecomeMarkup) {
  CompareResults results = testing::sample_results();
  const std::string bad = "</style></script><script>alert(\"1\")</script>&<!--{{title}}";
  results.corpus_name = results.command = results.machine = results.version = results.preset = results.started = bad;
  results.tokenizer = bad;
  results.settings = {{bad, bad}};
  for (MethodResults& method : results.methods) {
    method.name = method.sample = method.sample_prompt = method.sample_note = method.model_folder = bad;
    method.evaluations.back().gap = bad;
  }
  const std::string page = report_html(results);
  std::vector<Element> elements;
  ASSERT_NO_THROW(elements = read_markup(page, true));
  EXPECT_EQ(std::ranges::count(elements, "script", &Element::name), 2);
  EXPECT_EQ(page.find("<!--"), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(text_of(page, "results"))["machine"], bad);
}

TEST(ReportPage, HasOnlyTablesOfWhatWasMeasured) {
  CompareResults results = testing::sample_results({{"alibi", 5, 0}, {"rotary", 6, 0}});
  const auto has = [&](const char* table) {
    return nlohmann::json::parse(to_json(results))["report"]["tables"].contains(table);
  };
  EXPECT_TRUE(has("perplexity") && has("bits") && has("cost") && has("differences"));
  EXPECT_FALSE(has("speed"));
  results.speed = {{"alibi", false, {{"train", 128, 1234, 1620.4, 1.05, 3}}}};
  EXPECT_TRUE(has("speed"));
  results.held_out.bigram_nll = std::log(4.0);  // below both: neither has learned
  EXPECT_FALSE(has("differences"));
}

TEST(ReportPage, IsTheSameAfterAReadingOfTheJson) {
  CompareResults results = testing::sample_results();
  for (MethodResults& method : results.methods) method.sample = method.runs[0].sample = "text";
  EXPECT_EQ(report_html(results_from_json(to_json(results))), report_html(results));
}

TEST(WriteReport, WritesItsFiles) {
  const test::TemporaryFolder temporary;
  const std::filesystem::path folder = temporary.path() / "deep";
  const CompareResults results = testing::sample_results();
  write_report(results, folder);
  EXPECT_EQ(core::read_file(folder / "results.json"), to_json(results));
  EXPECT_EQ(core::read_file(folder / "figure.svg"), figure_svg(results));
  EXPECT_EQ(core::read_file(folder / "report.html"), report_html(results));
  EXPECT_EQ(core::read_file(folder / "figure.csv"), figure_csv(results));
  EXPECT_THROW(write_report(results, folder / "report.html"), Error);
}

}  // namespace
}  // namespace alibi::report
