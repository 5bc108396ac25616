// config.json of another program's model whose weights are good: which family comes first. Weights in shards.
#include <filesystem>

#include "alibi/embed.h"
#include "alibi/language_model.h"
#include "formats/safetensors.h"
#include "harness.h"
#include "json_mutator.h"
#include "target.h"
#include "temporary_folder.h"

namespace alibi::fuzz {
namespace {

struct FamilySample {
  const char* name;
  const char* config;
  std::vector<std::pair<const char*, Shape>> tensors;
};

/// One block of width 4, vocabulary 5.
const std::vector<FamilySample>& samples() {
  static const std::vector<FamilySample> all = {
      {"mpt",
       R"({"model_type": "mpt", "d_model": 4, "n_heads": 2, "n_layers": 1, "vocab_size": 5, "max_seq_len": 9, "no_bias": true,
           "expansion_ratio": 1, "norm_type": "low_precision_layernorm", "logit_scale": null, "tie_word_embeddings": true,
           "ffn_config": {"ffn_type": "mptmlp"}, "layer_norm_epsilon": 1e-5, "emb_pdrop": 0, "resid_pdrop": 0,
           "alibi_attention": {"train_length": 7, "dropout": 0.25, "tolerance": 0},
           "attn_config": {"alibi": true, "alibi_bias_max": 8, "attn_type": "multihead_attention", "clip_qkv": 6,
                           "qk_ln": false, "prefix_lm": false, "softmax_scale": null, "attn_pdrop": 0}})",
       {{"transformer.wte.weight", {5, 4}},
        {"transformer.norm_f.weight", {4}},
        {"transformer.blocks.0.norm_1.weight", {4}},
        {"transformer.blocks.0.attn.Wqkv.weight", {12, 4}},
        {"transformer.blocks.0.attn.out_proj.weight", {4, 4}},
        {"transformer.blocks.0.norm_2.weight", {4}},
        {"transformer.blocks.0.ffn.up_proj.weight", {4, 4}},
        {"transformer.blocks.0.ffn.down_proj.weight", {4, 4}}}},
      {"falcon",
       R"({"model_type": "falcon", "hidden_size": 4, "num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 5,
           "alibi": true, "bias": false, "multi_query": false, "parallel_attn": false, "layer_norm_epsilon": 1e-5,
           "new_decoder_architecture": false, "hidden_dropout": 0, "attention_dropout": 0, "ffn_hidden_size": 4,
           "apply_residual_connection_post_layernorm": false})",
       {{"transformer.word_embeddings.weight", {5, 4}},
        {"transformer.ln_f.weight", {4}},
        {"transformer.ln_f.bias", {4}},
        {"transformer.h.0.input_layernorm.weight", {4}},
        {"transformer.h.0.input_layernorm.bias", {4}},
        {"transformer.h.0.self_attention.query_key_value.weight", {12, 4}},
        {"transformer.h.0.self_attention.dense.weight", {4, 4}},
        {"transformer.h.0.post_attention_layernorm.weight", {4}},
        {"transformer.h.0.post_attention_layernorm.bias", {4}},
        {"transformer.h.0.mlp.dense_h_to_4h.weight", {4, 4}},
        {"transformer.h.0.mlp.dense_4h_to_h.weight", {4, 4}}}},
      {"baichuan",
       R"({"model_type": "baichuan", "hidden_size": 4, "num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 5,
           "intermediate_size": 3, "hidden_act": "silu", "rms_norm_eps": 1e-6, "model_max_length": 9, "z_loss_weight": 0,
           "tie_word_embeddings": false})",
       {{"model.embed_tokens.weight", {5, 4}},
        {"lm_head.weight", {5, 4}},
        {"model.norm.weight", {4}},
        {"model.layers.0.input_layernorm.weight", {4}},
        {"model.layers.0.self_attn.W_pack.weight", {12, 4}},
        {"model.layers.0.self_attn.o_proj.weight", {4, 4}},
        {"model.layers.0.post_attention_layernorm.weight", {4}},
        {"model.layers.0.mlp.gate_proj.weight", {3, 4}},
        {"model.layers.0.mlp.up_proj.weight", {3, 4}},
        {"model.layers.0.mlp.down_proj.weight", {4, 3}}}},
      {"jais",
       R"({"model_type": "btlm", "n_embd": 4, "n_head": 2, "n_layer": 1, "vocab_size": 5, "n_inner": 3, "n_positions": 9,
           "position_embedding_type": "alibi", "activation_function": "swiglu", "mup_embeddings_scale": 2,
           "mup_output_alpha": 2, "mup_width_scale": 0.5, "mup_scale_qk_dot_by_d": true, "layer_norm_epsilon": 1e-5,
           "alibi_scaling": {"type": "linear", "factor": 2.0}, "attn_pdrop": 0})",
       {{"transformer.wte.weight", {5, 4}},
        {"transformer.relative_pe.slopes", {2, 1}},
        {"transformer.ln_f.weight", {4}},
        {"transformer.ln_f.bias", {4}},
        {"transformer.h.0.ln_1.weight", {4}},
        {"transformer.h.0.ln_1.bias", {4}},
        {"transformer.h.0.attn.c_attn.weight", {4, 12}},
        {"transformer.h.0.attn.c_attn.bias", {12}},
        {"transformer.h.0.attn.c_proj.weight", {4, 4}},
        {"transformer.h.0.attn.c_proj.bias", {4}},
        {"transformer.h.0.ln_2.weight", {4}},
        {"transformer.h.0.ln_2.bias", {4}},
        {"transformer.h.0.mlp.c_fc.weight", {4, 3}},
        {"transformer.h.0.mlp.c_fc.bias", {3}},
        {"transformer.h.0.mlp.c_fc2.weight", {4, 3}},
        {"transformer.h.0.mlp.c_fc2.bias", {3}},
        {"transformer.h.0.mlp.c_proj.weight", {3, 4}},
        {"transformer.h.0.mlp.c_proj.bias", {4}}}},
      {"bloom",
       R"({"model_type": "bloom", "hidden_size": 4, "n_head": 2, "n_layer": 1, "vocab_size": 5, "seq_length": 9,
           "layer_norm_epsilon": 1e-5, "apply_residual_connection_post_layernorm": false, "hidden_dropout": 0,
           "attention_dropout": 0, "tie_word_embeddings": true})",
       {{"word_embeddings.weight", {5, 4}},
        {"word_embeddings_layernorm.weight", {4}},
        {"word_embeddings_layernorm.bias", {4}},
        {"ln_f.weight", {4}},
        {"ln_f.bias", {4}},
        {"h.0.input_layernorm.weight", {4}},
        {"h.0.input_layernorm.bias", {4}},
        {"h.0.self_attention.query_key_value.weight", {12, 4}},
        {"h.0.self_attention.query_key_value.bias", {12}},
        {"h.0.self_attention.dense.weight", {4, 4}},
        {"h.0.self_attention.dense.bias", {4}},
        {"h.0.post_attention_layernorm.weight", {4}},
        {"h.0.post_attention_layernorm.bias", {4}},
        {"h.0.mlp.dense_h_to_4h.weight", {16, 4}},
        {"h.0.mlp.dense_h_to_4h.bias", {16}},
        {"h.0.mlp.dense_4h_to_h.weight", {4, 16}},
        {"h.0.mlp.dense_4h_to_h.bias", {4}}}},
      {"refact",
       R"({"model_type": "gpt_refact", "n_embd": 4, "n_head": 2, "n_layer": 1, "vocab_size": 5, "n_positions": 9,
           "multi_query": true, "scale_attn_weights": true, "layer_norm_epsilon": 1e-5, "resid_pdrop": 0})",
       {{"transformer.wte.weight", {5, 4}},
        {"lm_head.weight", {5, 4}},
        {"ln_f.weight", {4}},
        {"transformer.h.0.ln_1.weight", {4}},
        {"transformer.h.0.attn.q.weight", {4, 4}},
        {"transformer.h.0.attn.kv.weight", {4, 4}},
        {"transformer.h.0.attn.c_proj.weight", {4, 4}},
        {"transformer.h.0.ln_2.weight", {4}},
        {"transformer.h.0.mlp.gate_up_proj.weight", {512, 4}},
        {"transformer.h.0.mlp.c_proj.weight", {4, 256}}}},
      {"replit",
       R"({"model_type": "replit_lm", "d_model": 4, "n_heads": 2, "n_layers": 1, "vocab_size": 5, "max_seq_len": 9,
           "alibi": true, "alibi_bias_max": 8, "attn_clip_qkv": null, "attn_qk_ln": false, "mlp_ratio": 1, "no_bias": true,
           "softmax_scale": null, "prefix_lm": false, "embedding_fraction": 1.0, "logit_scale": null})",
       {{"transformer.wte.weight", {5, 4}},
        {"transformer.ln_f.weight", {4}},
        {"transformer.blocks.0.ln_1.weight", {4}},
        {"transformer.blocks.0.attn.Wqkv.weight", {12, 4}},
        {"transformer.blocks.0.attn.out_proj.weight", {4, 4}},
        {"transformer.blocks.0.ln_2.weight", {4}},
        {"transformer.blocks.0.mlp.mlp_up.weight", {4, 4}},
        {"transformer.blocks.0.mlp.mlp_down.weight", {4, 4}}}},
      {"bert",
       R"({"model_type": "bert", "hidden_size": 4, "num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 5,
           "intermediate_size": 3, "type_vocab_size": 2, "max_position_embeddings": 9, "hidden_act": "gelu",
           "position_embedding_type": "alibi", "feed_forward_type": "geglu", "layer_norm_eps": 1e-12,
           "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0, "alibi_starting_size": 9})",
       {{"bert.embeddings.word_embeddings.weight", {5, 4}},
        {"bert.embeddings.token_type_embeddings.weight", {2, 4}},
        {"bert.embeddings.LayerNorm.weight", {4}},
        {"bert.embeddings.LayerNorm.bias", {4}},
        {"bert.encoder.layer.0.attention.self.Wqkv.weight", {12, 4}},
        {"bert.encoder.layer.0.attention.self.Wqkv.bias", {12}},
        {"bert.encoder.layer.0.attention.output.dense.weight", {4, 4}},
        {"bert.encoder.layer.0.attention.output.dense.bias", {4}},
        {"bert.encoder.layer.0.attention.output.LayerNorm.weight", {4}},
        {"bert.encoder.layer.0.attention.output.LayerNorm.bias", {4}},
        {"bert.encoder.layer.0.mlp.gated_layers.weight", {6, 4}},
        {"bert.encoder.layer.0.mlp.wo.weight", {4, 3}},
        {"bert.encoder.layer.0.mlp.wo.bias", {4}},
        {"bert.encoder.layer.0.mlp.layernorm.weight", {4}},
        {"bert.encoder.layer.0.mlp.layernorm.bias", {4}},
        {"bert.pooler.dense.weight", {4, 4}},
        {"bert.pooler.dense.bias", {4}},
        {"classifier.weight", {1, 4}},
        {"classifier.bias", {1}}}}};
  return all;
}

/// Each sample's weights in a folder of its own.
struct FamilyFolders {
  test::TemporaryFolder root;
  std::vector<std::filesystem::path> folders;

  FamilyFolders() {
    for (const FamilySample& sample : samples()) {
      std::vector<formats::NamedTensor> tensors;
      for (const auto& [name, shape] : sample.tensors) {
        Tensor tensor(shape);
        tensor.fill(0.5f);
        tensors.push_back({name, tensor});
      }
      folders.push_back(root / sample.name);
      std::filesystem::create_directories(folders.back());
      formats::write_safetensors(folders.back() / "model.safetensors", tensors);
    }
  }
};

/// What is read must also compute.
void load(const std::filesystem::path& folder) {
  const LanguageModel model = LanguageModel::load(folder);
  const std::vector<int32_t> ids = {4, 0, 2};
  if (!model.config().transformer.head.predicts) {
    const EncoderInput input{.ids = ids};
    demand(embed_inputs(model, std::span(&input, 1)).elements() == model.config().transformer.d_model, "vectors");
    return;
  }
  demand(model.logits(Tensor::from(ids, {1, 3})).elements() == 3 * int64_t{model.config().vocab_size}, "logits");
}

bool run(std::string_view input) {
  static const FamilyFolders all;
  const Choice choice = choose(input, static_cast<unsigned>(all.folders.size()));
  const std::filesystem::path& folder = all.folders[choice.kind];
  write_file(folder / "config.json", choice.content);
  return takes(input, folder, [&] { load(folder); });
}

std::vector<Seed> seeds() {
  std::vector<Seed> all;
  for (size_t i = 0; i < samples().size(); ++i) {
    all.push_back({samples()[i].name, chosen(static_cast<unsigned>(i), samples()[i].config)});
  }
  return all;
}

}  // namespace

Target family() { return {"family", run, seeds, mutate_json}; }

}  // namespace alibi::fuzz
