// The newer of two checkpoints has one damaged file, and a run is continued from them.
#include <iterator>

#include "core/checksum.h"
#include "harness.h"
#include "json_mutator.h"
#include "models.h"
#include "target.h"
#include "temporary_folder.h"
#include "train/checkpoint.h"

namespace alibi::fuzz {
namespace {

constexpr const char* kNames[] = {"training.json", "training.safetensors", "model.safetensors", "config.json",
                                  "dict.txt"};
constexpr unsigned kFiles = std::size(kNames);
constexpr int64_t kNewest = 2;
/// Kinds of inputs: one of the files as it is, or with checksums that fit it, so that it is read although it is
/// damaged.
constexpr unsigned kKinds = 2 * kFiles;

/// A run with a checkpoint after each of its two updates.
struct Run {
  test::TemporaryFolder folder;
  LanguageModel model = small_model(small_configs().front());
  training::OptimizerState optimizer{TrainOptions(), (model.zero_gradients(), model.parameters())};
  formats::OrderedJson identity = {{"seed", 1}, {"length", 16}, {"precision", "f32"}};
  std::filesystem::path newest = folder / "checkpoints/step-000002";
  Files good;

  Run() {
    const training::Checkpoints checkpoints(folder.path());
    training::TrainState state;
    state.seconds = 1.5;
    for (state.step = 1; state.step <= kNewest; ++state.step) {
      state.tokens += 256;
      state.loss.push_back(5.5f);
      state.evaluations.push_back({state.step, 5.25});
      checkpoints.write(model, optimizer.to_write(nullptr), state, identity);
    }
    good = files_of(newest);
  }

  /// The step that the run continues from.
  int64_t resume() {
    const training::Checkpoints checkpoints(folder.path());
    const std::optional<training::Checkpoint> found = training::find_newest(folder.path());
    demand(found.has_value(), "there is a checkpoint");
    const training::TrainState state = checkpoints.resume(*found, model, optimizer, identity);
    demand(static_cast<int64_t>(state.loss.size()) == state.step, "every step has a loss");
    return state.step;
  }
};

/// With the checksum of what it says.
std::string sealed(formats::Json state) {
  state.erase("xxh64");
  state["xxh64"] = core::xxh64(state.dump(-1, ' ', false, formats::Json::error_handler_t::replace));
  return state.dump(-1, ' ', false, formats::Json::error_handler_t::replace);
}

void seal(const Run& run, const std::string& name, std::string_view content) {
  if (name == kNames[0]) {
    const formats::Json state = formats::Json::parse(content, nullptr, false);
    if (state.is_object()) write_file(run.newest / name, sealed(state));
  } else {
    formats::Json state = formats::Json::parse(run.good.at(kNames[0]));
    state["files"][name] = {{"bytes", content.size()}, {"xxh64", core::xxh64(content)}};
    write_file(run.newest / kNames[0], sealed(state));
  }
}

bool run(std::string_view input) {
  static Run whole;
  const Choice choice = choose(input, kKinds);
  const std::string name = kNames[choice.kind % kFiles];
  const bool seals = choice.kind >= kFiles;
  write_file(whole.newest / name, choice.content);
  if (seals) seal(whole, name, choice.content);
  int64_t step = 0;
  takes(input, whole.folder.path(), [&] { step = whole.resume(); });
  const bool same = choice.content == whole.good.at(name);
  demand(seals || name == kNames[0] || step == (same ? kNewest : kNewest - 1),
         "the newest whole checkpoint is continued from");
  write_files(whole.newest, whole.good);
  return step == kNewest;
}

std::vector<Seed> seeds() {
  const Run whole;
  std::vector<Seed> all;
  for (unsigned kind = 0; kind < kKinds; ++kind) {
    const std::string name = kNames[kind % kFiles];
    all.push_back({name + (kind < kFiles ? "" : ".sealed"), chosen(kind, whole.good.at(name))});
  }
  return all;
}

}  // namespace

Target checkpoint() { return {"checkpoint", run, seeds, mutate_json}; }

}  // namespace alibi::fuzz
