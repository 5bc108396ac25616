// A checkpoint with one file of another content, and with the checksums that this asks for, which is continued from.
#include <iterator>

#include "alibi/error.h"
#include "core/checksum.h"
#include "formats/json.h"
#include "harness.h"
#include "json_mutator.h"
#include "models.h"
#include "target.h"
#include "temporary_folder.h"
#include "train/checkpoint.h"

namespace alibi::fuzz {
namespace {

constexpr const char* names[] = {"training.json", "training.safetensors", "model.safetensors", "config.json",
                                 "dict.txt"};

/// A run that has one checkpoint.
struct Run {
  test::TemporaryFolder folder;
  LanguageModel model = small_model(small_configs().front());
  OptimizerState optimizer{TrainOptions(), (model.zero_gradients(), model.parameters())};
  OrderedJson identity = {{"seed", 1}, {"length", 16}};
  std::filesystem::path checkpoint = folder / "checkpoints/step-000002";
  Files good;

  Run() {
    TrainState state;
    state.step = 2;
    state.tokens = 512;
    state.seconds = 1.5;
    state.loss = {5.5f, 5.25f};
    state.evaluations = {{1, 5.5}, {2, 5.25}};
    Checkpoints(folder.path()).write(model, optimizer, state, identity);
    good = files_of(checkpoint);
  }

  /// Checksums would stop every change at the door; so they are made right, as far as there is a place for them.
  void seal(const std::string& name, std::string_view content) const {
    Json state;
    try {
      state = parse_json(name == "training.json" ? content : std::string_view(good.at("training.json")), name);
    } catch (const Error&) {
      return;
    }
    if (!state.is_object()) return;
    if (name != "training.json") state["files"][name] = {{"bytes", content.size()}, {"xxh64", xxh64(content)}};
    state.erase("xxh64");
    state["xxh64"] = xxh64(state.dump());
    write_file(checkpoint / "training.json", state.dump());
  }

  void resume() {
    const Checkpoints checkpoints(folder.path());
    const std::optional<Checkpoint> newest = find_newest(folder.path());
    demand(newest.has_value(), "there is a checkpoint");
    const TrainState state = checkpoints.resume(*newest, model, optimizer, identity);
    demand(static_cast<int64_t>(state.loss.size()) == state.step, "every step has a loss");
  }
};

bool run(std::string_view input) {
  static Run whole;
  const Choice choice = choose(input, std::size(names));
  const std::string name = names[choice.kind];
  write_file(whole.checkpoint / name, choice.content);
  whole.seal(name, choice.content);
  const bool taken = takes(input, whole.folder.path(), [&] { whole.resume(); });
  write_files(whole.checkpoint, whole.good);
  return taken;
}

std::vector<Seed> seeds() {
  const Run whole;
  std::vector<Seed> all;
  for (unsigned kind = 0; kind < std::size(names); ++kind) {
    all.push_back({names[kind], chosen(kind, whole.good.at(names[kind]))});
  }
  return all;
}

}  // namespace

Target checkpoint() { return {"checkpoint", run, seeds, mutate_json}; }

}  // namespace alibi::fuzz
