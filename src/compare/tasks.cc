#include "compare/tasks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "compare/dice.h"
#include "core/check.h"

namespace alibi::comparison {

namespace {

constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kKeys = "ABCDEFGH";
constexpr std::string_view kLetters = "abcdefghijklmnop";
constexpr std::string_view kCopied = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

std::string random_bytes(std::string_view choices, int64_t count, Dice& dice) {
  std::string bytes;
  for (int64_t i = 0; i < count; ++i) bytes += dice.one_of(choices);
  return bytes;
}

/// The pieces in their order, at random places among random letters.
TaskText among_letters(const std::vector<TaskText>& pieces, int64_t bytes, Dice& dice) {
  int64_t letters = bytes;
  for (const TaskText& piece : pieces) letters -= std::ssize(piece.bytes);
  std::string is_piece(pieces.size(), '\1');
  is_piece.append(static_cast<size_t>(std::max<int64_t>(0, letters)), '\0');
  dice.shuffle(is_piece);
  TaskText text;
  size_t next = 0;
  for (const char place : is_piece) {
    if (place == 0) {
      text.add(std::string(1, dice.one_of(kLetters)));
      continue;
    }
    text.bytes += pieces[next].bytes;
    text.scored += pieces[next++].scored;
  }
  return text;
}

TaskText written(char key, char value) {
  TaskText text;
  text.add({key, value});
  return text;
}

TaskText asked(char key, char value) {
  TaskText text;
  text.add({'?', key});
  text.add({value}, true);
  return text;
}

// Recall: multi-query associative recall (Arora et al. 2023, "Zoology", arXiv 2312.04927). "A7" is a pair of key and
// value; "?A" asks for the value of A.

int64_t pairs_of(const TaskSettings& settings) { return std::clamp<int64_t>((settings.train_length - 1) / 8, 1, 8); }

/// Few or many pairs and questions, because easy sequences help to learn the hard ones.
TaskText practice_recall(const TaskSettings& settings, int64_t bytes, Dice& dice) {
  const std::string keys = dice.different(kKeys, dice.between(1, pairs_of(settings)));
  const std::string values = random_bytes(kDigits, std::ssize(keys), dice);
  std::string order = keys, seen;
  const int64_t most = dice.between(bytes / 2, bytes) - 2 * std::ssize(keys);  // bytes of questions
  for (int64_t i = 0; i < std::max<int64_t>(1, most / 3); ++i) order += dice.one_of(keys);
  dice.shuffle(order);
  std::vector<TaskText> pieces;
  for (const char key : order) {
    const char value = values[keys.find(key)];
    pieces.push_back(seen.find(key) == std::string::npos ? written(key, value) : asked(key, value));
    seen += key;
  }
  return among_letters(pieces, bytes, dice);
}

/// A pair whose value is the answer at the end. The `others` stand near it, before or after, as far as there is room,
/// so that only the key tells which value is right. Pairs with `is_before` stand before it.
TaskText ask_for_pair(const TaskSettings& settings, char key, char value,
                      const std::vector<std::pair<char, bool>>& others, int64_t bytes, int64_t distance, Dice& dice) {
  const int64_t near = settings.train_length / 2, between = distance - 3, before = bytes - 5 - between;
  const int64_t near_before = std::min(near, before), near_after = std::min(near, between);
  std::vector<TaskText> left, right;
  for (const auto& [other, is_before] : others) {
    const bool fits_left = 2 * std::ssize(left) + 2 <= near_before;
    const bool fits_right = !is_before && 2 * std::ssize(right) + 2 <= near_after;
    if (!fits_left && !fits_right) continue;
    const bool is_left = fits_left && (!fits_right || dice.below(near_before + near_after) < near_before);
    (is_left ? left : right).push_back(written(other, dice.one_of(kDigits)));
  }
  TaskText text;
  text.add(random_bytes(kLetters, before - near_before, dice));
  text.add(among_letters(left, near_before, dice).bytes + key + value);
  text.add(among_letters(right, near_after, dice).bytes);
  text.add(random_bytes(kLetters, between - near_after, dice) + '?' + key);
  text.add({value}, true);
  return text;
}

TaskText ask_recall(const TaskSettings& settings, int64_t bytes, int64_t distance, Dice& dice) {
  const std::string keys = dice.different(kKeys, dice.between(1, pairs_of(settings)));
  std::vector<std::pair<char, bool>> others;
  for (const char key : keys.substr(1)) others.emplace_back(key, false);
  return ask_for_pair(settings, keys[0], dice.one_of(kDigits), others, bytes, distance, dice);
}

// Updates: the same with keys that are written again. The last value counts.

int64_t updated_keys(const TaskSettings& settings) {
  return std::clamp<int64_t>((settings.train_length - 1) / 16, 1, 4);
}

TaskText practice_updates(const TaskSettings& settings, int64_t bytes, Dice& dice) {
  const std::string keys = dice.different(kKeys, dice.between(1, updated_keys(settings)));
  std::string values(keys.size(), ' ');
  std::vector<TaskText> pieces;
  for (int64_t left = dice.between(bytes / 2, bytes); left >= 3; left -= std::ssize(pieces.back().bytes)) {
    const auto key = static_cast<size_t>(dice.below(std::ssize(keys)));
    if (values[key] == ' ' || dice.is_true(0.5)) {
      values[key] = dice.one_of(kDigits);
      pieces.push_back(written(keys[key], values[key]));
    } else {
      pieces.push_back(asked(keys[key], values[key]));
    }
  }
  return among_letters(pieces, bytes, dice);
}

TaskText ask_updates(const TaskSettings& settings, int64_t bytes, int64_t distance, Dice& dice) {
  const std::string keys = dice.different(kKeys, updated_keys(settings));
  std::vector<std::pair<char, bool>> others = {{keys[0], true}};  // an earlier value, which is wrong
  for (int64_t i = 1; i < settings.train_length / 8; ++i) {
    const char key = dice.one_of(keys);
    others.emplace_back(key, key == keys[0]);
  }
  return ask_for_pair(settings, keys[0], dice.one_of(kDigits), others, bytes, distance, dice);
}

// Passkey (Mohtashami & Jaggi 2023, arXiv 2305.16300): "#4071" hidden in text, and "#" asks for it.

constexpr int64_t kPasskeyDigits = 4;

std::string hiding_text(const TaskSettings& settings, int64_t bytes, Dice& dice) {
  const std::string_view filler = settings.filler;
  if (std::ssize(filler) <= bytes) return random_bytes(kLetters, bytes, dice);
  std::string text(
      filler.substr(static_cast<size_t>(dice.below(std::ssize(filler) - bytes)), static_cast<size_t>(bytes)));
  for (char& c : text) {
    if (c == '#' || kDigits.find(c) != std::string_view::npos) c = ' ';
  }
  return text;
}

/// `before` bytes, the key, `between` bytes, the question and its answer.
TaskText hidden_passkey(const TaskSettings& settings, int64_t before, int64_t between, Dice& dice) {
  const std::string text = hiding_text(settings, before + between, dice);
  const std::string key = dice.different(kDigits, kPasskeyDigits);
  TaskText out;
  out.add(text.substr(0, static_cast<size_t>(before)));
  out.add("#" + key);
  out.add(text.substr(static_cast<size_t>(before)));
  out.add("#");
  out.add(key, true);
  return out;
}

TaskText practice_passkey(const TaskSettings& settings, int64_t bytes, Dice& dice) {
  const int64_t rest = bytes - 2 * (kPasskeyDigits + 1), before = dice.between(0, rest);
  TaskText text = hidden_passkey(settings, before, dice.between(0, rest - before), dice);
  text.add(hiding_text(settings, bytes - std::ssize(text.bytes), dice));
  return text;
}

TaskText ask_passkey(const TaskSettings& settings, int64_t bytes, int64_t distance, Dice& dice) {
  return hidden_passkey(settings, bytes - distance - kPasskeyDigits - 1, distance - kPasskeyDigits - 1, dice);
}

// Flip-flop (Liu et al. 2023, arXiv 2306.00946): "w" writes a bit, "r" reads it, and the bit after "i" is ignored.

void add_flips(TaskText& text, int64_t count, double ignored, char& memory, Dice& dice) {
  for (int64_t i = 0; i < count; ++i) {
    const char bit = dice.one_of("01");
    if (memory != ' ' && dice.is_true(ignored)) {
      text.add({'i', bit});
    } else if (memory == ' ' || dice.is_true(0.5)) {
      text.add({'w', memory = bit});
    } else {
      text.add("r");
      text.add({memory}, true);
    }
  }
}

TaskText practice_flipflop(const TaskSettings&, int64_t bytes, Dice& dice) {
  TaskText text;
  text.add(std::string(static_cast<size_t>(bytes % 2), '.'));
  char memory = ' ';
  add_flips(text, bytes / 2 - 1, 0.8, memory, dice);
  text.add("r");
  text.add({memory}, true);
  return text;
}

/// Sparse (ignored .98) or dense (.1) instructions, then the last write and only ignored bits until the read.
TaskText ask_flipflop(const TaskSettings&, int64_t bytes, int64_t distance, Dice& dice) {
  const int64_t ignored = distance / 2 - 1, before = bytes / 2 - ignored - 2;
  TaskText text;
  text.add(std::string(static_cast<size_t>(bytes % 2), '.'));
  char memory = ' ';
  add_flips(text, before, dice.is_true(0.5) ? 0.98 : 0.1, memory, dice);
  text.scored.assign(text.scored.size(), '\0');
  memory = dice.one_of("01");
  text.add({'w', memory});
  add_flips(text, ignored, 1, memory, dice);
  text.add("r");
  text.add({memory}, true);
  return text;
}

// Copy: different letters after "[" are repeated after ">". Digits lie around and between.

int64_t max_copied(const TaskSettings& settings) { return std::clamp<int64_t>((settings.train_length - 1) / 4, 1, 16); }

TaskText copied(const std::string& letters, int64_t before, int64_t between, Dice& dice) {
  TaskText text;
  text.add(random_bytes(kDigits, before, dice) + "[" + letters);
  text.add(random_bytes(kDigits, between, dice) + ">");
  text.add(letters, true);
  return text;
}

TaskText practice_copy(const TaskSettings& settings, int64_t bytes, Dice& dice) {
  const std::string letters = dice.different(kCopied, dice.between(1, max_copied(settings)));
  const int64_t rest = bytes - 2 * std::ssize(letters) - 2, between = dice.between(0, rest);
  TaskText text = copied(letters, dice.between(0, rest - between), between, dice);
  text.add(random_bytes(kDigits, bytes - std::ssize(text.bytes), dice));
  return text;
}

/// Asks for one of the letters; the text ends there.
TaskText ask_copy(const TaskSettings& settings, int64_t bytes, int64_t distance, Dice& dice) {
  const int64_t count = std::min(max_copied(settings), distance - 1), between = distance - 1 - count;
  const int64_t place = dice.below(std::min(count, bytes - 1 - distance));
  TaskText text = copied(dice.different(kCopied, count), bytes - 2 - distance - place, between, dice);
  text.bytes.resize(static_cast<size_t>(bytes));
  text.scored.assign(static_cast<size_t>(bytes), '\0');
  text.scored.back() = '\1';
  return text;
}

// Parity and repeat are controls: report::control_note() knows them by their names.

// Parity: "0110=0;" is a run of bits and its parity. Transformers are not expected to learn long runs.

void add_parity(TaskText& text, int64_t bits, Dice& dice) {
  const std::string run = random_bytes("01", bits, dice);
  text.add(run + "=");
  text.add(std::count(run.begin(), run.end(), '1') % 2 == 0 ? "0" : "1", true);
}

/// Runs whose lengths are uniform on a logarithmic scale, up to the training length.
TaskText practice_parity(const TaskSettings& settings, int64_t bytes, Dice& dice) {
  TaskText text;
  while (bytes - std::ssize(text.bytes) >= 4) {
    const int64_t most = std::min(bytes - std::ssize(text.bytes), settings.train_length) - 3;
    const double share = static_cast<double>(dice.below(1 << 20)) / (1 << 20);
    add_parity(text, static_cast<int64_t>(std::pow(static_cast<double>(most + 1), share)), dice);
    text.add(";");
  }
  text.add(std::string(static_cast<size_t>(bytes - std::ssize(text.bytes)), ';'));
  return text;
}

TaskText ask_parity(const TaskSettings& settings, int64_t bytes, int64_t distance, Dice& dice) {
  TaskText text = practice_parity(settings, bytes - 1 - distance, dice);
  text.scored.assign(text.scored.size(), '\0');
  add_parity(text, distance - 1, dice);
  return text;
}

// Repeat: the answer is the letter just before it.

TaskText practice_repeat(const TaskSettings&, int64_t bytes, Dice& dice) {
  TaskText text;
  text.add({dice.one_of(kLetters)});
  while (std::ssize(text.bytes) < bytes) {
    const bool repeats = dice.is_true(0.5);
    text.add({repeats ? text.bytes.back() : dice.one_of(kLetters)}, repeats);
  }
  return text;
}

TaskText ask_repeat(const TaskSettings& settings, int64_t bytes, int64_t, Dice& dice) {
  TaskText text = practice_repeat(settings, bytes - 1, dice);
  text.scored.assign(text.scored.size(), '\0');
  text.add({text.bytes.back()}, true);
  return text;
}

}  // namespace

const std::vector<Task>& all_tasks() {
  static const std::vector<Task> tasks = {
      {"recall", "the value of a key that was written once, among pairs of keys and values", 0.1, 3,
       [](int64_t bytes) { return bytes - 2; }, practice_recall, ask_recall},
      {"updates", "the last value of a key that was written several times", 0.1, 3,
       [](int64_t bytes) { return bytes - 2; }, practice_updates, ask_updates},
      {"passkey", "four digits hidden in text", 1.0 / 5040, kPasskeyDigits + 1,
       [](int64_t bytes) { return bytes - kPasskeyDigits - 1; }, practice_passkey, ask_passkey},
      {"flipflop", "the bit that was written last, with bits to ignore after it", 0.5, 2,
       [](int64_t bytes) { return 2 * (bytes / 2 - 1); }, practice_flipflop, ask_flipflop},
      {"copy", "the letters of an earlier part in their order", 1.0 / 26, 2, [](int64_t bytes) { return bytes - 2; },
       practice_copy, ask_copy},
      {"parity", "the parity of a run of bits, which hardly any transformer learns for long runs", 0.5, 2,
       [](int64_t bytes) { return bytes - 1; }, practice_parity, ask_parity},
      {"repeat", "the token just before, which every method must learn", 1.0 / 16, 1,
       [](int64_t) { return int64_t{1}; }, practice_repeat, ask_repeat},
  };
  return tasks;
}

const Task& task_from(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Task& task : all_tasks()) {
    if (task.name == name) return task;
    names.emplace_back(task.name);
  }
  fail_usage("[compare] there is no task '{}', expected one of {}", name, fmt::join(names, ", "));
}

}  // namespace alibi::comparison
