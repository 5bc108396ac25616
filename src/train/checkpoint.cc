#include "train/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <system_error>
#include <utility>

#include "core/check.h"
#include "core/checksum.h"
#include "core/format.h"
#include "core/locks.h"
#include "core/temporary_file.h"
#include "formats/safetensors.h"
#include "model/families/own_as_family.h"
#include "model/own_folder.h"
#include "train/identity.h"

namespace alibi {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStateFile = "training.json";
constexpr const char* kTensorFile = "training.safetensors";
constexpr const char* kChecksum = "xxh64";
constexpr int64_t kFormat = 2;
constexpr int64_t kMax = int64_t{1} << 53;  // the largest integer that JSON represents exactly

fs::path folder_of(const fs::path& model_folder) { return model_folder / "checkpoints"; }

std::string name_of_step(int64_t step) { return fmt::format("step-{:06}", step); }

/// The step in a checkpoint's name, or -1.
int64_t step_of(const std::string& name) {
  constexpr std::string_view prefix = "step-";
  int64_t step = -1;
  const bool is_step = name.starts_with(prefix) &&
                       core::parse_number(std::string_view(name).substr(prefix.size()), step) &&
                       name == name_of_step(step);
  return is_step ? step : -1;
}

/// Steps of the checkpoints, newest first. The checkpoints may be damaged.
std::vector<int64_t> steps_in(const fs::path& folder) {
  std::vector<int64_t> steps;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const int64_t step = step_of(entry->path().filename().string());
    if (step >= 0) steps.push_back(step);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

/// Thrown for an intact file that a newer version wrote.
class NewerFormat : public Error {
 public:
  using Error::Error;
};

/// Checksum of all keys except the checksum itself. Order and whitespace do not matter.
std::string checksum_of(formats::Json state) {
  state.erase(kChecksum);
  return core::xxh64(state.dump(-1, ' ', false, formats::Json::error_handler_t::replace));
}

formats::JsonObject read_state_file(const fs::path& checkpoint) {
  formats::JsonObject json = formats::read_json_object(checkpoint / kStateFile);
  const int64_t format = json.get_int("format", kFormat, kMax);
  const std::string expected = json.get<std::string>(kChecksum), found = checksum_of(json.raw());
  check(found == expected, "[resume] {}the checksum is {}, expected {}: the file is damaged", json.where(), found,
        expected);
  if (format > kFormat) {
    throw NewerFormat(fmt::format("[resume] {}format is {}, expected {}; a newer version of alibi wrote this file",
                                  json.where(), format, kFormat));
  }
  return json;
}

void check_file(const fs::path& path, int64_t bytes, const std::string& checksum) {
  const uintmax_t size = fs::file_size(path);
  check(size == static_cast<uintmax_t>(bytes), "[resume] {}: has {} bytes, expected {}", path.string(), size, bytes);
  const std::string found = core::xxh64_of_file(path);
  check(found == checksum, "[resume] {}: the checksum is {}, expected {}: the file is damaged", path.string(), found,
        checksum);
}

void check_files(const fs::path& checkpoint, const formats::JsonObject& json) {
  const formats::JsonObject files = json.object("files");
  for (const char* name : {"config.json", "model.safetensors", kTensorFile}) {
    check(files.has(name), "[json] {}{} is missing", files.where(), name);
  }
  for (const std::string& name : files.keys()) {
    check(fs::path(name).filename() == name, "[json] {}{} is not a plain file name, expected one without a folder",
          files.where(), name);
    const formats::JsonObject file = files.object(name);
    const std::string checksum = file.get<std::string>(kChecksum);
    check(checksum.size() == 16, "[json] {}{} is \"{}\", expected 16 hexadecimal digits", file.where(), kChecksum,
          checksum);
    check_file(checkpoint / name, file.get_int("bytes", 0, kMax), checksum);
  }
}

training::TrainState read_state(const formats::JsonObject& json) {
  training::TrainState state;
  state.step = json.get_int("step", 1, kMax);
  state.tokens = json.get_int("tokens", 1, kMax);
  state.seconds = json.get_number("seconds", 0, 1e15);
  state.finished = json.get<bool>("finished");
  for (const std::vector<double>& pair : json.get<std::vector<std::vector<double>>>("evaluations")) {
    check(pair.size() == 2 && pair[0] == std::floor(pair[0]) && pair[0] >= 1 &&
              pair[0] <= static_cast<double>(state.step) && std::isfinite(pair[1]),
          "[json] {}evaluations contains [{}], expected an update and its loss", json.where(), fmt::join(pair, ", "));
    state.evaluations.push_back({static_cast<int64_t>(pair[0]), pair[1]});
  }
  return state;
}

/// Reads and checks a checkpoint. Throws Error that describes the damage.
training::Checkpoint read_whole(const fs::path& folder) {
  try {
    const formats::JsonObject json = read_state_file(folder);
    training::Checkpoint result;
    result.state = read_state(json);
    result.identity = json.object("run").raw();
    check(folder.filename() == name_of_step(result.state.step),
          "[json] {}step is {}, expected the step in the folder's name", json.where(), result.state.step);
    check_files(folder, json);
    const auto precision = precision_from(json.object("run").get<std::string>("precision"));
    result.info = {folder, result.state.step, result.state.finished, precision, {}};
    return result;
  } catch (const fs::filesystem_error& error) {
    fail("[resume] {}: {}", error.path1().string(), error.code().message());
  }
}

/// The name of an unfinished or removed checkpoint. A later process recognizes it by this name.
fs::path unfinished(const fs::path& path) { return path.string() + fmt::format(".{}.part", ::getpid()); }

void remove_folder(const fs::path& path) {
  // Renamed before removal, so that a partly removed checkpoint cannot be mistaken for a complete one.
  const fs::path part = unfinished(path);
  std::error_code ignored;
  fs::remove_all(part, ignored);
  core::rename_synced(path, part);
  fs::remove_all(part, ignored);
}

formats::OrderedJson state_json(const training::TrainState& state, const formats::OrderedJson& identity) {
  formats::OrderedJson evaluations = formats::OrderedJson::array();
  for (const TrainEvaluation& evaluation : state.evaluations) evaluations.push_back({evaluation.step, evaluation.loss});
  return {{"format", kFormat},        {"step", state.step},         {"tokens", state.tokens},
          {"seconds", state.seconds}, {"finished", state.finished}, {"evaluations", evaluations},
          {"run", identity}};
}

void read_weights(const fs::path& checkpoint, LanguageModel& model) {
  const formats::Safetensors file(checkpoint);
  model::check_own_weights(file, model.config());
  model::read_own_weights(file, model.config(), model.parameters());
  model.weights_changed();
}

}  // namespace

void training::remove_leftovers(const fs::path& model_folder) {
  std::vector<fs::path> leftovers;
  std::error_code ignored;
  for (fs::directory_iterator entry(folder_of(model_folder), ignored), end; entry != end; entry.increment(ignored)) {
    if (ignored) break;
    const fs::path name = entry->path().filename();  // unfinished() made it
    if (name.extension() == ".part" && step_of(name.stem().stem().string()) >= 0) leftovers.push_back(entry->path());
  }
  for (const fs::path& path : leftovers) fs::remove_all(path, ignored);
  core::remove_left_files(model_folder);
}

std::optional<TrainEvaluation> training::TrainState::best() const {
  const auto lowest = std::min_element(evaluations.begin(), evaluations.end(),
                                       [](const auto& a, const auto& b) { return a.loss < b.loss; });
  return lowest == evaluations.end() ? std::nullopt : std::optional(*lowest);
}

int64_t training::TrainState::evaluations_without_gain() const {
  const std::optional<TrainEvaluation> lowest = best();
  return std::count_if(evaluations.begin(), evaluations.end(),
                       [&](const TrainEvaluation& evaluation) { return evaluation.step > lowest->step; });
}

training::Checkpoints::Checkpoints(const fs::path& model_folder)
    : folder_((core::make_folder(folder_of(model_folder)), folder_of(model_folder))), lock_(folder_) {
  training::remove_leftovers(model_folder);
}

void training::Checkpoints::write(const LanguageModel& model, std::vector<formats::StreamedTensor> tensors,
                                  const training::TrainState& state, const formats::OrderedJson& identity) const {
  const fs::path target = folder_ / name_of_step(state.step);
  const core::TemporaryFolder unfinished_folder(unfinished(target));
  const fs::path& part = unfinished_folder.path;
  model::write_own_files(part, model::own_folder_json(model.config(), &model.tokenizer()), model.config(),
                         model.parameters(), &model.tokenizer());
  const Tensor losses = Tensor::from(state.loss, {static_cast<int64_t>(state.loss.size())});
  tensors.push_back({"loss", "F32", losses.shape(), [&] { return losses; }});
  formats::write_safetensors(part / kTensorFile, tensors);
  formats::OrderedJson json = state_json(state, identity);
  for (const auto& entry : fs::directory_iterator(part)) {
    if (!entry.is_regular_file()) continue;
    json["files"][entry.path().filename().string()] = {{"bytes", entry.file_size()},
                                                       {kChecksum, core::xxh64_of_file(entry.path())}};
  }
  json[kChecksum] = checksum_of(formats::Json::parse(json.dump()));
  formats::write_json(part / kStateFile, json);  // written last; each of these files and the folder are synced
  if (fs::exists(target))
    remove_folder(target);  // the existing checkpoint is damaged, because an intact one would have been resumed
  core::rename_synced(part, target);
}

training::TrainState training::Checkpoints::resume(const training::Checkpoint& checkpoint, LanguageModel& model,
                                                   training::OptimizerState& optimizer,
                                                   const formats::OrderedJson& identity) const {
  const fs::path& folder = checkpoint.info.folder;
  const std::vector<std::string> different = training::differences(identity, checkpoint.identity);
  check(different.empty(),
        "[resume] {} belongs to another run: {}. Give the same text and settings, or train into another folder",
        folder.string(), fmt::join(different, "; "));
  training::TrainState state = checkpoint.state;
  const formats::Safetensors file(folder / kTensorFile);
  optimizer.load(file);
  file.check_loadable("loss", {state.step}, DType::float32);
  Tensor losses = Tensor::empty({state.step});
  file.load_finite_into("loss", losses);
  state.loss = losses.to_floats();
  read_weights(folder, model);
  // Otherwise newer, damaged checkpoints would remain the newest after the next write.
  for (const int64_t step : steps_in(folder_)) {
    if (step > state.step) remove_folder(folder_ / name_of_step(step));
  }
  return state;
}

fs::path training::run_folder_of(const fs::path& model) {
  std::error_code error;
  const fs::path whole = fs::canonical(model, error);
  const bool is_checkpoint = !error && step_of(whole.filename().string()) >= 0 &&
                             whole.parent_path() == folder_of(whole.parent_path().parent_path());
  return is_checkpoint ? whole.parent_path().parent_path() : model;
}

void training::load_checkpoint(const fs::path& model_folder, int64_t step, LanguageModel& model,
                               OptimizerState& optimizer) {
  const fs::path folder = folder_of(model_folder) / name_of_step(step);
  optimizer.load(formats::Safetensors(folder / kTensorFile));
  read_weights(folder, model);
}

void training::Checkpoints::load_weights(int64_t step, LanguageModel& model) const {
  read_weights(read_whole(folder_ / name_of_step(step)).info.folder, model);
}

void training::Checkpoints::prune(int64_t keep, const std::optional<TrainEvaluation>& best) const {
  const std::vector<int64_t> steps = steps_in(folder_);
  for (size_t i = static_cast<size_t>(keep); i < steps.size(); ++i) {
    if (!best || steps[i] != best->step) remove_folder(folder_ / name_of_step(steps[i]));
  }
}

void training::Checkpoints::remove_all() const {
  for (const int64_t step : steps_in(folder_)) remove_folder(folder_ / name_of_step(step));
}

std::optional<training::Checkpoint> training::find_newest(const fs::path& model_folder) {
  const fs::path folder = folder_of(model_folder);
  std::vector<std::string> damaged;
  for (const int64_t step : steps_in(folder)) {
    try {
      training::Checkpoint found = read_whole(folder / name_of_step(step));
      found.info.damaged = std::move(damaged);
      return found;
    } catch (const NewerFormat&) {
      throw;
    } catch (const Error& error) {  // an older checkpoint may be intact
      damaged.emplace_back(error.what());
    }
  }
  check(damaged.empty(), "[resume] {} contains no complete checkpoint: {}. To start again, remove that folder",
        folder.string(), fmt::join(damaged, "; "));
  return {};
}

void check_folder_is_free(const fs::path& model_folder) {
  const std::optional<training::Checkpoint> earlier = training::find_newest(model_folder);
  check(!earlier || earlier->info.finished,
        "[train] {} contains a run that was interrupted after {} updates; resume it, train into another folder, or "
        "replace it with --overwrite",
        model_folder.string(), earlier ? earlier->info.step : 0);
  const bool holds_model = earlier || core::path_exists(model_folder / "model.safetensors") ||
                           core::path_exists(model_folder / "model.safetensors.index.json");
  check_usage(!holds_model, "[train] {} contains a model; train into another folder, or replace it with --overwrite",
              model_folder.string());
}

std::optional<CheckpointInfo> newest_checkpoint(const fs::path& model_folder) {
  const std::optional<training::Checkpoint> found = training::find_newest(model_folder);
  return found ? std::optional(found->info) : std::nullopt;
}

}  // namespace alibi
