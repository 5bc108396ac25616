#include "ranks/threads.h"

#include <algorithm>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>

#include "core/check.h"

namespace alibi::ranks {
namespace {

using Message = std::vector<std::byte>;

/// The messages on their way. Each channel has a sender, a receiver and a tag. Its messages and its receives are
/// numbered, and each receive takes the message with its number.
struct Mail {
  struct Channel {
    uint64_t sent = 0, asked = 0;
    std::map<uint64_t, Message> messages;
  };
  std::mutex mutex;
  std::map<std::tuple<int, int, int>, Channel> channels;  // by sender, receiver, tag
  std::exception_ptr failure;
};

class Sent : public Transfer {
 public:
  bool is_done() override { return true; }  // it was copied
};

class Receive : public Transfer {
 public:
  Receive(Mail& mail, Mail::Channel& channel, std::span<std::byte> data)
      : mail_(mail), channel_(channel), number_(channel.asked++), data_(data) {}

  bool is_done() override {
    const std::lock_guard lock(mail_.mutex);
    const auto found = channel_.messages.find(number_);
    if (found == channel_.messages.end()) {
      check(mail_.failure == nullptr, "[ranks] another rank failed");
      return false;
    }
    check(found->second.size() == data_.size(), "[ranks] a message has {} bytes, expected {}", found->second.size(),
          data_.size());
    std::copy(found->second.begin(), found->second.end(), data_.begin());
    channel_.messages.erase(found);
    return true;
  }

 private:
  Mail& mail_;
  Mail::Channel& channel_;
  uint64_t number_;
  std::span<std::byte> data_;
};

class ThreadGroup : public Group {
 public:
  ThreadGroup(Mail& mail, int rank, int size) : mail_(mail), rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string name_of(int rank) const override { return fmt::format("rank {}", rank); }

 protected:
  std::unique_ptr<Transfer> start_send(int to, int tag, std::span<const std::byte> data) override {
    const std::lock_guard lock(mail_.mutex);
    Mail::Channel& channel = mail_.channels[{rank_, to, tag}];
    channel.messages.emplace(channel.sent++, Message(data.begin(), data.end()));
    return std::make_unique<Sent>();
  }
  std::unique_ptr<Transfer> start_receive(int from, int tag, std::span<std::byte> data) override {
    const std::lock_guard lock(mail_.mutex);
    return std::make_unique<Receive>(mail_, mail_.channels[{from, rank_, tag}], data);
  }

 private:
  Mail& mail_;
  int rank_, size_;
};

}  // namespace

void run_as_threads(int ranks, const std::function<void(Group&)>& body) {
  check_usage(ranks >= 1, "[ranks] the number of ranks is {}, expected at least 1", ranks);
  Mail mail;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadGroup group(mail, rank, ranks);
      try {
        body(group);
      } catch (...) {
        const std::lock_guard lock(mail.mutex);
        if (mail.failure == nullptr) mail.failure = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (mail.failure != nullptr) std::rethrow_exception(mail.failure);
}

}  // namespace alibi::ranks
