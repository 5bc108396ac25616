#include "compare/run_store.h"

#include <system_error>

#include "alibi/compare.h"
#include "core/check.h"
#include "report/html.h"
#include "report/json.h"
#include "train/checkpoint.h"
#include "train/identity.h"

namespace alibi::comparison {
namespace {

namespace fs = std::filesystem;

constexpr const char* kComparisonFile = "compare.json";
constexpr const char* kRunFile = "run.json";
constexpr const char* kModels = "models";
constexpr int64_t kFormat = 1;

formats::JsonObject read_own(const fs::path& path) {
  formats::JsonObject json = formats::read_json_object(path);
  const int64_t format = json.get_int("format", 1, INT32_MAX);
  check(format == kFormat, "[compare] {}format is {}, expected {}; a newer version of alibi wrote this file",
        json.where(), format, kFormat);
  return json;
}

}  // namespace

RunStore::RunStore(const fs::path& folder, bool is_first) : folder_(folder) {
  if (!keeps() || !is_first) return;
  core::make_folder(folder_);
  lock_.emplace(folder_);
}

void RunStore::open(const formats::OrderedJson& identity, bool overwrite) {
  if (!keeps()) return;
  const fs::path file = folder_ / kComparisonFile;
  training::remove_leftovers(folder_);
  if (overwrite) forget();
  if (core::path_exists(file)) {
    const std::vector<std::string> different =
        training::differences(identity, read_own(file).object("comparison").raw());
    check_usage(different.empty(),
                "[compare] {} contains a different comparison: {}. To continue it, give the same text and settings; "
                "otherwise choose another folder with --out, or replace it with --overwrite",
                folder_.string(), fmt::join(different, "; "));
    return;
  }
  check_usage(overwrite || !report::holds_report(folder_),
              "[compare] {} contains a report but not the files of its comparison; choose another folder with "
              "--out, or replace it with --overwrite",
              folder_.string());
  forget();  // remains of a comparison whose compare.json is missing
  formats::write_json(file, {{"format", kFormat}, {"comparison", identity}});
}

/// Removes the files that this class and its training runs wrote.
void RunStore::forget() const {
  std::error_code ignored;
  for (fs::directory_iterator entry(folder_ / kModels, ignored), end; entry != end; entry.increment(ignored)) {
    if (ignored) break;
    if (core::path_exists(entry->path() / kRunFile)) fs::remove_all(entry->path(), ignored);
  }
  for (fs::directory_iterator entry(folder_, ignored), end; entry != end; entry.increment(ignored)) {
    if (ignored) break;
    const std::string name = entry->path().filename().string();
    if (name.starts_with("note-") && name.ends_with(".json")) fs::remove(entry->path(), ignored);
  }
  fs::remove(folder_ / kComparisonFile, ignored);
}

std::string RunStore::model_folder(const RunResults& run) {
  const std::string task = run.task.name.empty() ? "" : run.task.name + "-";
  return fmt::format("{}/{}{}-{}-seed{}", kModels, task, run.method, run.train_length, run.seed);
}

StoredRun RunStore::load(const RunResults& begun) const {
  StoredRun run{begun};
  if (!keeps()) return run;
  run.results.model_folder = model_folder(begun);
  const fs::path file = path_of(begun) / kRunFile;
  training::remove_leftovers(path_of(begun));
  if (!core::path_exists(file)) {
    core::make_folder(path_of(begun));
    save(run);  // from here on the folder belongs to this comparison
    return run;
  }
  const formats::JsonObject json = read_own(file);
  run.trained = json.get<bool>("trained");
  run.done = json.get<bool>("done");
  if (run.trained || run.done) run.results = report::run_from_json(json.object("run").raw(), file.string());
  return run;
}

void RunStore::save(const StoredRun& run) const {
  if (!keeps()) return;
  check(core::path_exists(folder_ / kComparisonFile),
        "[compare] {} was removed or moved during the comparison; restore it and run the command again",
        (folder_ / kComparisonFile).string());
  formats::write_json(
      path_of(run.results) / kRunFile,
      {{"format", kFormat}, {"trained", run.trained}, {"done", run.done}, {"run", report::to_json(run.results)}});
}

std::optional<formats::JsonObject> RunStore::load_note(const std::string& name) const {
  const fs::path file = folder_ / fmt::format("note-{}.json", name);
  if (!keeps() || !core::path_exists(file)) return {};
  return read_own(file).object("note");
}

void RunStore::save_note(const std::string& name, const formats::OrderedJson& note) const {
  if (keeps()) formats::write_json(folder_ / fmt::format("note-{}.json", name), {{"format", kFormat}, {"note", note}});
}

}  // namespace alibi::comparison

namespace alibi {

std::optional<Precision> compared_precision(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / comparison::kComparisonFile;
  if (folder.empty() || !core::path_exists(file)) return {};
  return precision_from(comparison::read_own(file).object("comparison").get<std::string>("precision"));
}

}  // namespace alibi
