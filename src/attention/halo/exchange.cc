#include "attention/halo/exchange.h"

#include <algorithm>
#include <cstring>

#include "core/parallel.h"

namespace alibi::kernels::halo {
namespace {

using Bytes = std::vector<std::byte>;

Range common(const Range& a, const Range& b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

/// The rows of one shard that one rank reads, and their place in a message, which has all rows of the first tensor,
/// then those of the next.
struct Run {
  int64_t batch = 0, kv_head = 0;
  Range rows;
  int64_t at = 0;  ///< rows before these in the message
};
struct Runs {
  std::vector<Run> runs;
  int64_t rows = 0;
};

Runs runs_of(const SequenceRanks& ranks, const DividedSequence& layout, const KeyRanges& needs, int owner, int reader) {
  Runs result;
  const Range shard = layout.shard(ranks, owner);
  for (int64_t b = 0; b < layout.batch; ++b) {
    for (int64_t head = 0; head < layout.kv_heads; ++head) {
      const size_t at = static_cast<size_t>(reader) * layout.pairs() + static_cast<size_t>(b * layout.kv_heads + head);
      const Range rows = common(needs[at], shard);
      if (rows.empty()) continue;
      result.runs.push_back({b, head, rows, result.rows});
      result.rows += rows.size();
    }
  }
  return result;
}

int64_t row_bytes(const Tensor& tensor) { return tensor.size(3) * static_cast<int64_t>(size_of(tensor.dtype())); }

Bytes message_of(const Runs& runs, const RankRows& rows) {
  int64_t bytes = 0;
  for (const Tensor& tensor : rows.tensors) bytes += runs.rows * row_bytes(tensor);
  return Bytes(static_cast<size_t>(bytes));
}

/// Calls visit(values of the row in the tensor, values in the message, tensor of `sent`) for each row of each tensor.
/// The message has the data types of `sent`.
template <class Visit>
void each_row(const Runs& runs, const RankRows& rows, std::byte* message, const RankRows& sent, const Visit& visit) {
  core::parallel_for(std::ssize(runs.runs), [&](int64_t i) {
    const Run& run = runs.runs[static_cast<size_t>(i)];
    std::byte* of_tensor = message;
    for (size_t t = 0; t < rows.tensors.size(); ++t) {
      const Tensor& tensor = rows.tensors[t];
      const TensorView view = view_of(tensor);
      const auto element = static_cast<int64_t>(size_of(tensor.dtype()));
      const int64_t size = row_bytes(sent.tensors[t]);
      for (int64_t row = run.rows.begin; row < run.rows.end; ++row) {
        const int64_t offset = view.offset(run.batch, row - rows.range.begin, run.kv_head);
        auto* const values = static_cast<std::byte*>(tensor.raw()) + offset * element;
        visit(values, of_tensor + (run.at + row - run.rows.begin) * size, sent.tensors[t]);
      }
      of_tensor += runs.rows * size;
    }
  });
}

/// Sends the rows of `from` that `to_send` lists for each rank, and returns those that `to_receive` lists. The rows for
/// this rank itself are copied.
std::vector<Bytes> exchange(const SequenceRanks& ranks, const RankRows& from, const std::vector<Runs>& to_send,
                            const std::vector<Runs>& to_receive) {
  std::vector<Bytes> sent(to_send.size()), received(to_receive.size());
  std::vector<SequenceRanks::Send> sends;
  std::vector<SequenceRanks::Receive> receives;
  for (int i = 0; i < ranks.count; ++i) {
    // Every rank begins with its neighbours, so that not all send to the same rank at once.
    const int to = (ranks.rank + i) % ranks.count, source = (ranks.rank + ranks.count - i) % ranks.count;
    const Runs& out = to_send[static_cast<size_t>(to)];
    const Runs& in = to_receive[static_cast<size_t>(source)];
    if (out.rows > 0) {
      Bytes& message = sent[static_cast<size_t>(to)] = message_of(out, from);
      each_row(out, from, message.data(), from, [](const std::byte* values, std::byte* at, const Tensor& tensor) {
        std::memcpy(at, values, static_cast<size_t>(row_bytes(tensor)));
      });
      if (to != ranks.rank) sends.push_back({to, message});
    }
    if (in.rows > 0 && source != ranks.rank) {
      receives.push_back({source, received[static_cast<size_t>(source)] = message_of(in, from)});
    }
  }
  if (!sends.empty() || !receives.empty()) ranks.exchange(sends, receives);
  received[static_cast<size_t>(ranks.rank)] = std::move(sent[static_cast<size_t>(ranks.rank)]);
  return received;
}

std::vector<Runs> runs_by_rank(const SequenceRanks& ranks, const DividedSequence& layout, const KeyRanges& needs,
                               bool as_owner) {
  std::vector<Runs> result;
  for (int rank = 0; rank < ranks.count; ++rank) {
    result.push_back(as_owner ? runs_of(ranks, layout, needs, ranks.rank, rank)
                              : runs_of(ranks, layout, needs, rank, ranks.rank));
  }
  return result;
}

}  // namespace

void all_gather(const SequenceRanks& ranks, std::span<const std::span<std::byte>> parts) {
  std::vector<SequenceRanks::Send> sends;
  std::vector<SequenceRanks::Receive> receives;
  for (int i = 1; i < ranks.count; ++i) {
    const int to = (ranks.rank + i) % ranks.count, from = (ranks.rank + ranks.count - i) % ranks.count;
    const std::span<std::byte> ours = parts[static_cast<size_t>(ranks.rank)], theirs = parts[static_cast<size_t>(from)];
    if (!ours.empty()) sends.push_back({to, ours});
    if (!theirs.empty()) receives.push_back({from, theirs});
  }
  if (!sends.empty() || !receives.empty()) ranks.exchange(sends, receives);
}

void fetch(const SequenceRanks& ranks, const DividedSequence& layout, const KeyRanges& needs, const RankRows& own,
           RankRows& window) {
  const std::vector<Runs> to_receive = runs_by_rank(ranks, layout, needs, false);
  std::vector<Bytes> received = exchange(ranks, own, runs_by_rank(ranks, layout, needs, true), to_receive);
  for (size_t rank = 0; rank < received.size(); ++rank) {
    each_row(to_receive[rank], window, received[rank].data(), own,
             [](std::byte* values, const std::byte* at, const Tensor& tensor) {
               std::memcpy(values, at, static_cast<size_t>(row_bytes(tensor)));
             });
  }
}

void give_back(const SequenceRanks& ranks, const DividedSequence& layout, const KeyRanges& needs,
               const RankRows& window, RankRows& own) {
  const std::vector<Runs> to_receive = runs_by_rank(ranks, layout, needs, true);
  std::vector<Bytes> received = exchange(ranks, window, runs_by_rank(ranks, layout, needs, false), to_receive);
  RankRows sums = {own.range, {}};
  for (const Tensor& tensor : own.tensors) sums.tensors.emplace_back(tensor.shape());
  for (size_t rank = 0; rank < received.size(); ++rank) {
    each_row(to_receive[rank], sums, received[rank].data(), own,
             [](std::byte* sum, const std::byte* part, const Tensor& tensor) {
               auto* const values = reinterpret_cast<float*>(sum);
               for (int64_t d = 0; d < tensor.size(3); ++d) values[d] += load_value(tensor.dtype(), part, d);
             });
  }
  for (size_t t = 0; t < sums.tensors.size(); ++t) {
    const float* const from = sums.tensors[t].data<float>();
    const Tensor& to = own.tensors[t];
    const int64_t size = to.size(3);
    core::parallel_for(layout.batch * own.range.size(), [&, from](int64_t i) {
      for (int64_t head = 0; head < layout.kv_heads; ++head) {
        const float* const sum = from + (i * layout.kv_heads + head) * size;
        const int64_t row = i % own.range.size();
        const int64_t at = i / own.range.size() * to.stride(0) + row * to.stride(1) + head * to.stride(2);
        for (int64_t d = 0; d < size; ++d) store_value(to.dtype(), to.raw(), at + d, sum[d]);
      }
    });
  }
}

}  // namespace alibi::kernels::halo
