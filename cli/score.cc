// alibi score: scores each line of a text as soon as it is available. The text may be endless.
#include "alibi/score.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <numbers>

#include "commands.h"
#include "common.h"
#include "context_limits.h"
#include "core/check.h"
#include "core/files.h"
#include "model/position.h"
#include "text/lines.h"
#include "text/text_encoding.h"
#include "text/units.h"

namespace alibi::cli {
namespace {

/// A longer line is split at a place that does not change its tokens. Each part counts as a line, so memory is bounded.
constexpr size_t kLongestLine = 1 << 16;

/// The lines of a file, a pipe or standard input ("-"), each as soon as it is available.
class Lines {
 public:
  explicit Lines(const std::string& input) : name_(input == "-" ? "standard input" : input) {
    check(input == "-" || !core::is_folder(input), "[score] {} is a folder, expected files, or - for standard input",
          input);
    descriptor_ = input == "-" ? STDIN_FILENO : ::open(input.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
    check(descriptor_ >= 0, "[score] {}: {}", name_, std::strerror(errno));
  }
  ~Lines() {
    if (descriptor_ > STDIN_FILENO) ::close(descriptor_);
  }
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;

  /// Reads the next line with its line feed, if it has one, and without a carriage return. Returns false at the end.
  bool next(std::string& line) {
    for (size_t known = 0;;) {
      size_t end = buffer_.find('\n', begin_ + known);
      if (end != std::string::npos) {
        ++end;
      } else if (buffer_.size() - begin_ > kLongestLine + text::kMaxUnit) {
        end = begin_ + text::units_length(std::string_view(buffer_).substr(begin_), kLongestLine);
        if (end > begin_ + 1 && buffer_[end - 1] == '\r') --end;  // stays with its line feed
      } else {
        known = buffer_.size() - begin_;
        if (fill()) continue;
        end = buffer_.size();
      }
      line = text::with_line_feeds(buffer_.substr(begin_, end - begin_), is_first_);
      is_first_ = false;
      begin_ = end;
      return !line.empty();
    }
  }

 private:
  bool fill() {
    buffer_.erase(0, begin_);
    begin_ = 0;
    std::array<char, 1 << 16> more{};
    ssize_t read = -1;
    do {
      read = ::read(descriptor_, more.data(), more.size());
    } while (read < 0 && errno == EINTR);
    check(read >= 0, "[score] {} cannot be read: {}", name_, std::strerror(errno));
    buffer_.append(more.data(), static_cast<size_t>(read));
    return read > 0;
  }

  std::string name_;
  int descriptor_ = -1;
  std::string buffer_;
  size_t begin_ = 0;  // start of the text that has not been returned
  bool is_first_ = true;
};

struct ScoreCommand : CommonOptions {
  std::string model;
  std::vector<std::string> texts;
  std::optional<int64_t> context_length;  ///< if absent: the training length, or no limit if eviction limits the memory
  ModelUse use;
  bool per_token = false;
  ContextOptions context;
};

struct Scored {
  int64_t lines = 0, tokens = 0, bytes = 0;
  double bits = 0;
};

/// Scores a line and prints the result for each line or for each token.
void score_line(const std::string& line, const Tokenizer& tokenizer, Scorer& scorer, bool by_token, Scored& all) {
  const std::vector<int32_t> ids = tokenizer.encode(line);
  const std::vector<float> nll = scorer.score(ids);
  double bits = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const double of_token = static_cast<double>(nll[i]) / std::numbers::ln2;
    bits += of_token;
    if (by_token) {
      const std::string text = tokenizer.decode(std::span(ids).subspan(i, 1));
      say("{:.3f}\t{}\n", of_token, nlohmann::json(text::well_formed(text)).dump());
    }
  }
  if (!by_token) {
    say("{:.3f}\t{:.2f}\t", bits / static_cast<double>(line.size()), bits);
    say_text(line);
    if (!line.ends_with('\n')) say_text("\n");
  }
  flush_output();
  check_output();  // stop if output fails, because the scores are the only result
  ++all.lines;
  all.tokens += static_cast<int64_t>(ids.size());
  all.bytes += static_cast<int64_t>(line.size());
  all.bits += bits;
}

void run_score(ScoreCommand options) {
  options.apply();
  check_context_limits("score", options.context);
  default_to_standard_input(options.texts);
  LanguageModel model = LanguageModel::load(options.model);
  options.use.apply(model);
  const Tokenizer& tokenizer = model.tokenizer();
  Scorer scorer(model, {.context_length = options.context_length.value_or(0), .context = options.context});
  Scored all;
  for (size_t i = 0; i < options.texts.size(); ++i) {
    Lines lines(options.texts[i]);
    const int32_t end_of_text = tokenizer.end_of_text();
    if (i > 0) scorer.score(std::span(&end_of_text, 1));
    for (std::string line; lines.next(line);) score_line(line, tokenizer, scorer, options.per_token, all);
  }
  if (isatty(STDERR_FILENO) == 1) fmt::print(stderr, "{}", describe_evicted(scorer.certificate()));
  options.write_json({{"model", options.model},
                      {"interpolate", model::interpolation_json(model.interpolation())},
                      {"precision", name_of(model.precision())},
                      {"length", scorer.length()},
                      {"lines", all.lines},
                      {"tokens", all.tokens},
                      {"bytes", all.bytes},
                      {"bits", all.bits},
                      {"evicted", evicted_json(options.context, scorer.certificate())},
                      {"bits_per_byte", all.bytes > 0 ? all.bits / static_cast<double>(all.bytes) : 0}});
}

}  // namespace

void add_score(CLI::App& app) {
  auto options = std::make_shared<ScoreCommand>();
  Command command(app, "score", "Score each input line: bits per byte, total bits, and the line, separated by tabs");
  command.model(options->model);
  command.texts(options->texts, false, "Text files or pipes, or - for standard input [standard input]");
  command.count("--context-length", options->context_length,
                "Maximum context in tokens; a full context drops its older half [the training length; no limit with "
                "--memory or --eviction-tolerance]");
  options->use.add_to(command);
  command.flag("--per-token", options->per_token,
               "Score each token instead of each line: bits, and the token as a JSON string");
  add_context_limits(command, options->context);
  options->add_to(command);
  command.examples(
      "  tail -f server.log | alibi score model/\n"
      "  tail -f server.log | alibi score model/ --memory 64MiB\n"
      "  alibi score model/ server.log | sort -rn | head\n"
      "  alibi score model/ page.txt --per-token");
  command.runs([options] { run_score(*options); });
}

}  // namespace alibi::cli
