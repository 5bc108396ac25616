#include "train/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <system_error>

#include "core/check.h"
#include "train/identity.h"

namespace alibi {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStateFile = "training.json";
constexpr const char* kTensorFile = "training.safetensors";
constexpr int64_t kFormat = 1;
constexpr int64_t kMost = int64_t{1} << 53;  // what JSON can say exactly

fs::path folder_of(const fs::path& model_folder) { return model_folder / "checkpoints"; }

std::string name_of_step(int64_t step) { return fmt::format("step-{:06}", step); }

/// The step of a checkpoint's name, or -1.
int64_t step_of(const std::string& name) {
  constexpr std::string_view prefix = "step-";
  int64_t step = -1;
  if (!name.starts_with(prefix)) return -1;
  const char* end = name.data() + name.size();
  const auto [rest, problem] = std::from_chars(name.data() + prefix.size(), end, step);
  return problem == std::errc() && rest == end && name == name_of_step(step) ? step : -1;
}

/// Newest first; those that were renamed into place, whole or not.
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

/// Nothing if a file is missing or has not the size it was written with.
std::optional<JsonObject> read_if_whole(const fs::path& checkpoint) {
  try {
    JsonObject state = read_json_object(checkpoint / kStateFile);
    const JsonObject files = state.object("files");
    for (const std::string& name : files.keys()) {
      if (fs::file_size(checkpoint / name) != static_cast<uintmax_t>(files.get_int(name, 0, kMost))) return {};
    }
    return state;
  } catch (const std::exception&) {  // a damaged disk: an older checkpoint may do
    return {};
  }
}

struct Found {
  fs::path folder;
  JsonObject state;
};

std::optional<Found> newest_whole(const fs::path& folder) {
  for (const int64_t step : steps_in(folder)) {
    const fs::path checkpoint = folder / name_of_step(step);
    if (std::optional<JsonObject> state = read_if_whole(checkpoint)) return Found{checkpoint, *std::move(state)};
  }
  return {};
}

/// A name that says that this is no checkpoint (any more); the leftovers of a killed process are found by it.
fs::path part_of(const fs::path& path) { return path.string() + fmt::format(".{}.part", ::getpid()); }

void remove_folder(const fs::path& path) {
  // Renamed first: a checkpoint that is half removed must not look like one.
  const fs::path part = part_of(path);
  std::error_code ignored;
  fs::remove_all(part, ignored);
  rename_synced(path, part);
  fs::remove_all(part, ignored);
}

void remove_leftovers(const fs::path& model_folder) {
  std::vector<fs::path> leftovers;
  for (const auto& entry : fs::directory_iterator(folder_of(model_folder))) {
    if (entry.path().extension() == ".part") leftovers.push_back(entry.path());
  }
  for (const auto& entry : fs::directory_iterator(model_folder)) {
    if (entry.is_regular_file() && is_left_by_write_file(entry.path())) leftovers.push_back(entry.path());
  }
  std::error_code ignored;
  for (const fs::path& path : leftovers) fs::remove_all(path, ignored);
}

OrderedJson state_json(const TrainState& state, const OrderedJson& identity) {
  OrderedJson evaluations = OrderedJson::array();
  for (const TrainEvaluation& evaluation : state.evaluations) evaluations.push_back({evaluation.step, evaluation.loss});
  return {{"format", kFormat},        {"step", state.step},         {"tokens", state.tokens},
          {"seconds", state.seconds}, {"finished", state.finished}, {"evaluations", evaluations},
          {"run", identity}};
}

TrainState read_state(const JsonObject& json) {
  TrainState state;
  state.step = json.get_int("step", 1, kMost);
  state.tokens = json.get_int("tokens", 1, kMost);
  state.seconds = json.get_number("seconds", 0, 1e15);
  state.finished = json.get<bool>("finished");
  for (const Json& pair : json.raw().at("evaluations")) {
    state.evaluations.push_back({pair.at(0).get<int64_t>(), pair.at(1).get<double>()});
  }
  return state;
}

void copy_weights(const fs::path& folder, LanguageModel& model) {
  const LanguageModel saved = LanguageModel::load(folder);
  const std::vector<const Parameter*> from = saved.parameters();
  const std::vector<Parameter*> to = model.parameters();
  check(from.size() == to.size(), "[resume] {} holds {} parameters, expected {}", folder.string(), from.size(),
        to.size());
  for (size_t i = 0; i < to.size(); ++i) {
    check(from[i]->name == to[i]->name && from[i]->value.shape() == to[i]->value.shape(),
          "[resume] {} holds {} {}, expected {} {}", folder.string(), from[i]->name, from[i]->value.shape(),
          to[i]->name, to[i]->value.shape());
    to[i]->value.copy_from(from[i]->value);
  }
  model.weights_changed();
}

}  // namespace

std::optional<TrainEvaluation> TrainState::best() const {
  const auto lowest = std::min_element(evaluations.begin(), evaluations.end(),
                                       [](const auto& a, const auto& b) { return a.loss < b.loss; });
  return lowest == evaluations.end() ? std::nullopt : std::optional(*lowest);
}

int64_t TrainState::evaluations_without_gain() const {
  const std::optional<TrainEvaluation> lowest = best();
  return std::count_if(evaluations.begin(), evaluations.end(),
                       [&](const TrainEvaluation& evaluation) { return evaluation.step > lowest->step; });
}

Checkpoints::Checkpoints(const fs::path& model_folder)
    : folder_((make_folder(folder_of(model_folder)), folder_of(model_folder))), lock_(folder_) {
  remove_leftovers(model_folder);
}

void Checkpoints::write(const LanguageModel& model, const OptimizerState& optimizer, const TrainState& state,
                        const OrderedJson& identity) const {
  const fs::path target = folder_ / name_of_step(state.step), part = part_of(target);
  struct Remove {
    fs::path path;
    ~Remove() {
      std::error_code ignored;
      fs::remove_all(path, ignored);
    }
  } const remove{part};
  make_folder(part);
  model.save(part);
  std::vector<NamedTensor> tensors = optimizer.tensors();
  tensors.push_back({"loss", Tensor::from(state.loss, {static_cast<int64_t>(state.loss.size())})});
  write_safetensors(part / kTensorFile, tensors);
  OrderedJson json = state_json(state, identity);
  for (const auto& entry : fs::directory_iterator(part)) {
    if (!entry.is_regular_file()) continue;
    json["files"][entry.path().filename().string()] = entry.file_size();
  }
  write_json(part / kStateFile, json);            // last; each of these files and the folder is synced
  if (fs::exists(target)) remove_folder(target);  // of a damaged disk, or it would have been resumed from
  rename_synced(part, target);
}

TrainState Checkpoints::resume(LanguageModel& model, OptimizerState& optimizer, const OrderedJson& identity) const {
  const std::optional<Found> found = newest_whole(folder_);
  check(found.has_value(), "[resume] {} holds no whole checkpoint; start without resuming", folder_.string());
  const std::vector<std::string> different = differences(identity, found->state.object("run").raw());
  check(different.empty(),
        "[resume] {} is of another run: {}. Give the same text and settings, or train into another folder",
        found->folder.string(), fmt::join(different, "; "));
  TrainState state = read_state(found->state);
  const Safetensors file(found->folder / kTensorFile);
  for (NamedTensor& entry : optimizer.tensors()) file.load_into(entry.name, entry.tensor);
  const Tensor losses = file.load("loss");
  check(losses.elements() == state.step, "[resume] {}: {} losses, expected {}", found->folder.string(),
        losses.elements(), state.step);
  state.loss = losses.to_floats();
  copy_weights(found->folder, model);
  // Newer ones are damaged. They must not outlive, as the newest, what is written from here on.
  for (const int64_t step : steps_in(folder_)) {
    if (step > state.step) remove_folder(folder_ / name_of_step(step));
  }
  return state;
}

void Checkpoints::load_weights(int64_t step, LanguageModel& model) const {
  copy_weights(folder_ / name_of_step(step), model);
}

void Checkpoints::prune(int64_t keep, const std::optional<TrainEvaluation>& best) const {
  const std::vector<int64_t> steps = steps_in(folder_);
  for (size_t i = static_cast<size_t>(keep); i < steps.size(); ++i) {
    if (!best || steps[i] != best->step) remove_folder(folder_ / name_of_step(steps[i]));
  }
}

void Checkpoints::remove_all() const {
  for (const int64_t step : steps_in(folder_)) remove_folder(folder_ / name_of_step(step));
}

std::optional<CheckpointInfo> newest_checkpoint(const fs::path& model_folder) {
  const std::optional<Found> found = newest_whole(folder_of(model_folder));
  if (!found) return {};
  return CheckpointInfo{found->folder, found->state.get_int("step", 1, kMost), found->state.get<bool>("finished")};
}

}  // namespace alibi
