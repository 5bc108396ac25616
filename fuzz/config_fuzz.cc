// config.json of a model folder whose other files are good: which model they are of comes first.
#include "alibi/language_model.h"
#include "harness.h"
#include "json_mutator.h"
#include "models.h"
#include "target.h"
#include "temporary_folder.h"

namespace alibi::fuzz {
namespace {

/// The saved models, each in a folder of its own.
struct Models {
  test::TemporaryFolder root;
  std::vector<std::filesystem::path> folders;

  Models() {
    for (const LanguageModelConfig& config : small_configs()) {
      folders.push_back(root / std::to_string(folders.size()));
      small_model(config).save(folders.back());
    }
  }
};

/// What is read must also compute.
void load(const std::filesystem::path& folder) {
  const LanguageModel model = LanguageModel::load(folder);
  const std::vector<int32_t> ids = {4, 5, 7}, targets = {5, 7, 2};
  const std::vector<float> nll = model.nll(Tensor::from(ids, {1, 3}), Tensor::from(targets, {1, 3}));
  demand(nll.size() == ids.size(), "every target has a loss");
}

bool run(std::string_view input) {
  static const Models models;
  const Choice choice = choose(input, static_cast<unsigned>(models.folders.size()));
  const std::filesystem::path& folder = models.folders[choice.kind];
  write_file(folder / "config.json", choice.content);
  return takes(input, folder, [&] { load(folder); });
}

std::vector<Seed> seeds() {
  const Models models;
  std::vector<Seed> all;
  for (size_t i = 0; i < models.folders.size(); ++i) {
    const std::string name = name_of(small_configs()[i].transformer.position);
    all.push_back({name, chosen(static_cast<unsigned>(i), files_of(models.folders[i]).at("config.json"))});
  }
  return all;
}

}  // namespace

Target config() { return {"config", run, seeds, mutate_json}; }

}  // namespace alibi::fuzz
