// A group of ranks: the processes, or the threads of one process, that work on one task together. MPI is one
// implementation (world.h), threads of one process are another (threads.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace alibi::ranks {

/// Which exchange a message belongs to. Messages with the same tag between the same ranks arrive in the order in which
/// they were sent.
enum class Tag : uint8_t { control, values, weights, optimizer, results, sequence, gradients };

/// A message on its way.
class Transfer {
 public:
  virtual ~Transfer() = default;
  /// Whether the memory of the message can be used again. Returns at once. Throws Error if the message cannot arrive.
  virtual bool is_done() = 0;
};
using Transfers = std::vector<std::unique_ptr<Transfer>>;

class Group {
 public:
  virtual ~Group() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// The rank and its host, for messages: "rank 3 on node7".
  virtual std::string name_of(int rank) const = 0;
  /// The end of the message with which this rank ends the job, e.g. which checkpoint can be resumed. Any thread may
  /// call these.
  void set_advice(const std::string& advice);
  std::string advice() const;

  /// These start a message, whose memory must stay until it is done. Any thread may call them. A message has the size
  /// that the other rank expects. `part` distinguishes messages of one exchange.
  std::unique_ptr<Transfer> send(int to, Tag tag, std::span<const std::byte> data, int part = 0);
  std::unique_ptr<Transfer> receive(int from, Tag tag, std::span<std::byte> data, int part = 0);

  /// Bytes of all messages that this rank has sent.
  int64_t bytes_sent() const { return bytes_sent_; }

 protected:
  virtual std::unique_ptr<Transfer> start_send(int to, int tag, std::span<const std::byte> data) = 0;
  virtual std::unique_ptr<Transfer> start_receive(int from, int tag, std::span<std::byte> data) = 0;

 private:
  mutable std::mutex mutex_;
  std::string advice_;
  std::atomic<int64_t> bytes_sent_{0};
};

/// `part` of a message is less than this.
inline constexpr int kMaxParts = 4096;

/// Waits without using the core that other ranks may compute on.
void wait(Transfers& transfers);

template <class T>
std::span<std::byte> bytes_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

/// Returns when all ranks have called it.
void barrier(Group& group);
/// `parts` has the memory of each rank's part. That of this rank is sent to all others, whose parts are received.
void all_gather(Group& group, Tag tag, std::span<const std::span<std::byte>> parts);
/// One value of each rank, in the order of the ranks.
std::vector<double> all_gather(Group& group, double value);
/// Names and values, such as {"learning_rate", "0.001"}.
using NamedValues = std::vector<std::pair<std::string, std::string>>;
/// Throws UsageError on all ranks if the values of a rank differ from those of rank 0. The message names the rank and
/// every value that differs. Ranks with other settings would wait for each other forever, or compute a wrong result
/// together, so each command calls this before the ranks divide its work.
void check_same(Group& group, const NamedValues& values);
/// Copies `data` of rank 0 to all others.
void broadcast(Group& group, Tag tag, std::span<std::byte> data);

}  // namespace alibi::ranks
