// Results of a comparison as plain numbers, from which the report is made. results.json holds the same numbers.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace alibi {

/// A 95 % confidence interval; NaN if it is not known.
struct Interval {
  double low = std::numeric_limits<double>::quiet_NaN();
  double high = std::numeric_limits<double>::quiet_NaN();
};

/// One evaluation: all scored tokens, in windows of `length` tokens that advance by `stride` tokens.
struct EvaluationPoint {
  int64_t length = 0;
  int64_t stride = 0;
  int64_t tokens = 0;                  ///< tokens scored, each exactly once; the same ones at every length
  double nll = 0;                      ///< mean negative log-likelihood per token, nats
  double perplexity = 0;               ///< exp(nll)
  double bits_per_byte = 0;            ///< sum of the nll / ln 2 / bytes of text
  double tokens_per_second = 0;        ///< tokens scored per second
  std::vector<double> block_nll = {};  ///< sum of the nll of each block of the held-out text (HeldOut), nats
  std::string gap = {};                ///< if not empty, the reason why this length could not be evaluated; no number
                                       ///< is valid then
  // Computed over several seeds, or, for one seed, over blocks of text:
  double deviation = std::numeric_limits<double>::quiet_NaN();  ///< standard deviation of the nll between seeds
  Interval interval = {};                                       ///< interval of the nll
};

/// Mean loss of the same targets with a given length of text before them.
struct ContextPoint {
  int64_t context = 0;  ///< maximum number of input tokens; targets see between context - 15 and context
  double nll = 0;
  std::vector<double> block_nll;  ///< sums over each group of 16 targets
  Interval interval = {};         ///< as in EvaluationPoint
};

/// Attention weights of one head, by distance.
struct HeadAttention {
  int layer = 0, head = 0;                                  ///< counted from 0
  double slope = std::numeric_limits<double>::quiet_NaN();  ///< NaN: the model has no slopes
  std::vector<double> weight;                               ///< mean weight of a key at the distances of each bin
  std::vector<double> bias;  ///< weight by the bias only: the softmax of -slope * distance, or of T5's table
};

/// Attention weights of a model by distance.
struct AttentionMap {
  int64_t length = 0;              ///< length of the windows
  std::vector<int64_t> distances;  ///< bin i holds the distances from distances[i] to distances[i + 1] - 1
  std::vector<HeadAttention> heads;
};

/// Questions of a task with one length and one range of distances.
struct AnswerPoint {
  int64_t length = 0;    ///< tokens of each sequence
  int64_t distance = 0;  ///< largest number of tokens from the information to the answer
  int64_t questions = 0;
  int64_t right = 0;  ///< questions whose answer was the model's most likely one
  Interval interval;  ///< interval of the accuracy: over the questions, or over the seeds where that one is wider
  double accuracy() const { return static_cast<double>(right) / static_cast<double>(questions); }
};

/// What a model that was trained on a synthetic task answers.
struct TaskAnswers {
  std::string name;                 ///< "recall" and others; empty: the model was trained on text
  std::string meaning;              ///< what is asked
  double chance = 0;                ///< accuracy of random answers of the right kind
  std::vector<AnswerPoint> points;  ///< by length, then by distance
};

struct LossPoint {
  int64_t step = 0;  ///< updates done
  int64_t tokens = 0;
  double loss = 0;  ///< mean training nll per token since the last point, nats
};

/// Results of one model, trained with one seed at one length.
struct RunResults {
  std::string method;  ///< name of its Position
  int64_t train_length = 0;
  uint64_t seed = 0;
  int64_t parameters = 0;
  int64_t train_tokens = 0;
  double learning_rate = 0;
  double train_seconds = 0;
  double train_tokens_per_second = 0;
  double train_flops_per_token = 0;
  int64_t train_peak_bytes = 0;  ///< peak resident memory of the process during this training
  std::vector<LossPoint> loss;
  std::vector<EvaluationPoint> evaluations;  ///< non-overlapping windows, in ascending order of length
  std::vector<EvaluationPoint> sliding;      ///< sliding windows; empty if no stride was set
  /// With scaled positions (CompareOptions::interpolation) at lengths beyond the training length; empty if no
  /// interpolation was set.
  std::vector<EvaluationPoint> interpolated;
  /// With a sliding window of the training length, at lengths beyond it; empty unless CompareOptions::windowed has the
  /// method.
  std::vector<EvaluationPoint> windowed;
  /// Evaluation in one pass, if it was set: one point, whose length is the longest context of a target.
  std::vector<EvaluationPoint> streaming;
  int64_t eval_peak_bytes = 0;
  int64_t per_position_length = 0;
  std::vector<double> per_position_nll;  ///< mean nll of the tokens at each position of the window, nats
  std::vector<ContextPoint> context;     ///< in ascending order of context
  AttentionMap attention;                ///< ALiBi models only; without heads if it was not measured
  TaskAnswers task;                      ///< of a model that was trained on a task instead of text
  std::vector<TaskAnswers> answers;      ///< of a model that was trained on text and tasks
  std::string sample_prompt;
  std::string sample;       ///< text generated after the prompt, far past the training length
  std::string sample_note;  ///< if not empty, the reason why the sample stops early
  /// Number of bytes of prompt + sample up to the training length; < 0: tokens are bytes, so it is train_length.
  int64_t sample_bytes_at_train_length = -1;
  std::string model_folder;
  std::string diverged;  ///< if not empty, the error that ended the training; there is no model, and all points are
                         ///< gaps
};

/// Results of a method at one training length: means over its seeds (the geometric mean for perplexities), and the
/// sample of the first seed.
struct MethodResults : RunResults {
  std::string name;              ///< the method, and "alibi@128" if there are several training lengths
  int64_t window = 0;            ///< > 0: the models of another entry, evaluated with a sliding window of this length
  std::vector<uint64_t> seeds;   ///< seeds of the finished runs
  std::vector<RunResults> runs;  ///< in the order of the seeds
  /// Of a task. The method answers where the interval of its accuracy lies above 90 %: the largest length at which, as
  /// at all shorter ones, it answers at the smallest distances, and the largest distance up to which it answers at any
  /// of these lengths. Zeros: it does not even answer at the training length.
  int64_t largest_length = 0, largest_distance = 0;
};

/// Results of all methods on one task. A method's questions are those of all its seeds.
struct TaskResults {
  TaskAnswers task;                    ///< without points
  bool beside_text = false;            ///< the models are those of CompareResults::methods
  std::vector<MethodResults> methods;  ///< beside a text: only what concerns the task
};

/// Speed of one kind of work, timed in several rounds. The numbers are those of the median round.
struct SpeedPoint {
  std::string work;    ///< "train" or "eval"
  int64_t length = 0;  ///< length of the windows
  double tokens_per_second = 0;
  double cpu_seconds = 0;  ///< processor time of all threads, seconds per million tokens
  double spread = 1;       ///< ratio of the slowest round's wall time to the fastest round's
  int64_t rounds = 0;      ///< number of timed rounds (0 if unknown)
};

/// Speed of a trained model, measured after the runs. The methods are timed alternately, so that other work on the
/// machine affects all of them.
struct MethodSpeed {
  std::string method;
  bool all_keys = false;  ///< the skip rule was off: attention read every key
  std::vector<SpeedPoint> points;
  std::string name() const { return all_keys ? method + ", all keys" : method; }
};

/// A held-out file and its scored bytes.
struct HeldOutFile {
  std::string name;
  int64_t bytes = 0;
  int64_t scored_bytes = 0;
};

/// The text on which all runs are scored.
struct HeldOut {
  int64_t bytes = 0;                  ///< bytes of the scored tokens
  std::vector<int64_t> block_tokens;  ///< tokens of each block; a block has the longest length, and blocks are spread
                                      ///< evenly over the text
  std::vector<HeldOutFile> files;     ///< empty if the files are not known (a folder of tokens)
  /// Mean nll of the scored tokens, in nats, when a table of token pairs (bigrams) counted on the training text
  /// predicts them. A model that comes near it has not learned to use more than one token. NaN: not known.
  double bigram_nll = std::numeric_limits<double>::quiet_NaN();
};

struct CompareResults {
  int64_t train_length = 0;  ///< the shortest training length
  uint64_t seed = 0;         ///< the first seed
  int threads = 0;
  std::string preset;
  int64_t parameters = 0;          ///< number of parameters of the first method's model
  int64_t advised_tokens = 0;      ///< tokens that the preset trains on; 0 if not known
  std::vector<std::string> notes;  ///< sentences for the verdict about what the methods do not share
  int64_t train_bytes = 0, valid_bytes = 0, train_files = 0, valid_files = 0;
  HeldOut held_out;
  std::string corpus_name;  ///< how the user named the text
  std::string tokenizer;    ///< byte, bpe, unigram or words; empty if not known
  int64_t vocab_size = 0;
  std::vector<MethodResults> methods;  ///< on text; empty if only tasks were compared
  std::vector<TaskResults> tasks;
  std::vector<MethodSpeed> speed;  ///< the same points for all methods; empty if not measured
  int64_t runs_planned = 0;        ///< greater than runs_done() while the comparison is incomplete
  int64_t runs_done() const {
    int64_t runs = 0;
    for (const MethodResults& method : methods) {
      if (method.window == 0) runs += static_cast<int64_t>(method.runs.size());
    }
    for (const TaskResults& task : tasks) {
      if (task.beside_text) continue;
      for (const MethodResults& method : task.methods) runs += static_cast<int64_t>(method.runs.size());
    }
    return runs;
  }
  // Information needed to repeat the comparison:
  std::string command;
  std::string machine;  ///< CPU, cores, instruction set
  std::string version;
  std::string started;  ///< UTC, ISO 8601
  double seconds = 0;
  std::vector<std::pair<std::string, std::string>> settings;  ///< shown in the report in this order
};

}  // namespace alibi
