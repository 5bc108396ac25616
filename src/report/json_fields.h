// The fields of results.json in the order of the file. Reading and writing share this list.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "alibi/results.h"
#include "core/check.h"

namespace alibi::report {

/// Maximum number of tokens in a window: a double counts exactly up to here.
inline constexpr int64_t kMaxTokens = int64_t{1} << 53;

/// The type of a field as a visitor V receives it: a reader changes the field, a writer does not.
template <class V, class T>
using Part = std::conditional_t<V::writes, const T, T>;

template <class V>
void fields(V& v, Part<V, EvaluationPoint>& point) {
  v.within("length", point.length, int64_t{1}, kMaxTokens);
  v.value("stride", point.stride);
  v.value("tokens", point.tokens);
  const bool gap = v.has("error", !point.gap.empty());
  v.measurement("nll", point.nll, gap, true);
  v.measurement("perplexity", point.perplexity, gap, true);
  v.measurement("bits_per_byte", point.bits_per_byte, gap, false);
  v.measurement("tokens_per_second", point.tokens_per_second, gap, false);
  v.unless_unknown("deviation", point.deviation);
  v.interval(point.interval);
  v.unless_empty("block_nll", point.block_nll);
  v.unless_empty("error", point.gap);
}

template <class V>
void fields(V& v, Part<V, ContextPoint>& point) {
  v.within("context", point.context, int64_t{1}, kMaxTokens);
  v.needed("nll", point.nll);
  v.interval(point.interval);
  v.unless_empty("block_nll", point.block_nll);
}

template <class V>
void fields(V& v, Part<V, HeadAttention>& head) {
  constexpr int kMaxPlaces = 65535;
  v.within("layer", head.layer, 0, kMaxPlaces);
  v.within("head", head.head, 0, kMaxPlaces);
  v.value("slope", head.slope);
  v.needed("weight", head.weight);
  v.value("bias", head.bias);
}

template <class V>
void fields(V& v, Part<V, AttentionMap>& map) {
  v.value("length", map.length);
  v.value("distances", map.distances);
  v.list("heads", map.heads);
  const std::vector<int64_t>& distances = map.distances;
  const bool rise = std::is_sorted(distances.begin(), distances.end());
  check(distances.empty() || (rise && distances.front() >= 0 && distances.back() <= kMaxTokens),
        "[report] {}.distances is not increasing; expected a rising list of distances", v.where());
}

template <class V>
void fields(V& v, Part<V, AnswerPoint>& point) {
  v.within("length", point.length, int64_t{1}, kMaxTokens);
  v.within("distance", point.distance, int64_t{1}, kMaxTokens);
  v.within("questions", point.questions, int64_t{1}, kMaxTokens);
  v.within("right", point.right, int64_t{0}, std::max<int64_t>(0, point.questions));
  v.interval(point.interval);
}

template <class V>
void fields(V& v, Part<V, TaskAnswers>& task) {
  v.needed("name", task.name);
  v.value("meaning", task.meaning);
  v.needed("chance", task.chance);
  v.list("points", task.points);
}

template <class V>
void fields(V& v, Part<V, RunResults>& run) {
  v.value("method", run.method);
  v.value("train_length", run.train_length);
  v.value("seed", run.seed);
  v.value("parameters", run.parameters);
  v.group("train", [&](V& train) {
    train.value("tokens", run.train_tokens);
    train.value("learning_rate", run.learning_rate);
    train.value("seconds", run.train_seconds);
    train.value("tokens_per_second", run.train_tokens_per_second);
    train.value("flops_per_token", run.train_flops_per_token);
    train.value("peak_bytes", run.train_peak_bytes);
    train.loss(run.loss);
  });
  v.list("eval", run.evaluations);
  v.list("sliding", run.sliding);
  v.list("interpolated", run.interpolated);
  if (v.has("windowed", !run.windowed.empty())) v.list("windowed", run.windowed);
  v.list("streaming", run.streaming);
  v.list("context", run.context);
  v.value("eval_peak_bytes", run.eval_peak_bytes);
  v.group("per_position", [&](V& positions) {
    positions.value("length", run.per_position_length);
    positions.value("nll", run.per_position_nll);
  });
  if (v.has("attention", !run.attention.heads.empty())) {
    v.group("attention", [&](V& attention) { fields(attention, run.attention); });
  }
  if (v.has("task", !run.task.name.empty())) v.group("task", [&](V& task) { fields(task, run.task); });
  if (v.has("answers", !run.answers.empty())) v.list("answers", run.answers);
  v.group("sample", [&](V& sample) {
    sample.value("prompt", run.sample_prompt);
    sample.value("text", run.sample);
    sample.value("note", run.sample_note);
    sample.value("bytes_at_train_length", run.sample_bytes_at_train_length);
  });
  v.value("model_folder", run.model_folder);
  v.unless_empty("diverged", run.diverged);
}

template <class V>
void fields(V& v, Part<V, SpeedPoint>& point) {
  v.needed("work", point.work);
  v.needed("length", point.length);
  v.needed("tokens_per_second", point.tokens_per_second);
  v.value("cpu_seconds_per_million_tokens", point.cpu_seconds);
  v.value("spread", point.spread);
  v.value("rounds", point.rounds);
}

template <class V>
void fields(V& v, Part<V, MethodSpeed>& speed) {
  v.needed("method", speed.method);
  bool skip_rule = !speed.all_keys;
  v.value("skip_rule", skip_rule);
  if constexpr (!V::writes) speed.all_keys = !skip_rule;
  v.list("points", speed.points);
}

template <class V>
void fields(V& v, Part<V, HeldOutFile>& file) {
  v.value("name", file.name);
  v.value("bytes", file.bytes);
  v.value("scored_bytes", file.scored_bytes);
}

template <class V>
void fields(V& v, Part<V, HeldOut>& held_out) {
  v.value("bytes", held_out.bytes);
  v.value("bigram_nll", held_out.bigram_nll);
  v.value("block_tokens", held_out.block_tokens);
  v.list("files", held_out.files);
}

/// `runs` is called to visit the methods and their runs.
template <class V, class Runs>
void fields(V& v, Part<V, CompareResults>& results, const Runs& runs) {
  v.within("train_length", results.train_length, int64_t{1}, kMaxTokens);
  v.value("seed", results.seed);
  v.value("threads", results.threads);
  v.value("preset", results.preset);
  v.value("parameters", results.parameters);
  v.value("advised_tokens", results.advised_tokens);
  v.value("notes", results.notes);
  v.group("corpus", [&](V& corpus) {
    corpus.value("name", results.corpus_name);
    corpus.value("train_bytes", results.train_bytes);
    corpus.value("valid_bytes", results.valid_bytes);
    corpus.value("train_files", results.train_files);
    corpus.value("valid_files", results.valid_files);
  });
  v.group("held_out", [&](V& held_out) { fields(held_out, results.held_out); });
  v.group("tokenizer", [&](V& tokenizer) {
    tokenizer.value("kind", results.tokenizer);
    tokenizer.value("vocab_size", results.vocab_size);
  });
  runs();
  v.list("speed", results.speed);
  v.value("runs_planned", results.runs_planned);
  v.value("command", results.command);
  v.value("machine", results.machine);
  v.value("version", results.version);
  v.value("started", results.started);
  v.value("seconds", results.seconds);
  v.pairs("settings", results.settings);
}

}  // namespace alibi::report
