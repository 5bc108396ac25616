// One request and its answer, as the endpoints see them; and the log.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <utility>

#include "serve/network/connection.h"

namespace alibi::serve::network {

std::chrono::milliseconds duration_of(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(1000 * std::min(seconds, 1e9)));
}

void Connections::log(const OrderedJson& line) const {
  if (!options.logs_requests) return;
  const auto now = std::chrono::time_point_cast<std::chrono::seconds>(std::chrono::system_clock::now());
  OrderedJson dated{
      {"time", fmt::format("{:%Y-%m-%dT%H:%M:%S}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(now)))}};
  dated.update(line);
  writer.add(to_text(dated));
}

void Connections::log_failure(const std::exception_ptr& why) const noexcept {
  try {
    log({{"event", "failure"}, {"error", api_error_for(why).message}});
  } catch (...) {  // there is no memory for a line
  }
}

template <class Use>
void Exchange::post(Use use) {
  step("post");
  boost::asio::post(shared_.io, [self = shared_from_this(), use = std::move(use)] {
    const auto connection = self->connection_.lock();
    if (connection) connection->run([&] { use(*connection, self.get()); });
  });
}

void Exchange::reply(Reply reply) {
  post([reply = std::move(reply)](Connection& to, const Exchange* exchange) { to.reply(exchange, reply); });
}
void Exchange::begin_events() {
  post([](Connection& to, const Exchange* exchange) { to.begin_events(exchange); });
}
void Exchange::event(std::string_view data) {
  post([data = std::string(data)](Connection& to, const Exchange* exchange) { to.event(exchange, data); });
}
void Exchange::end_events(std::string_view last) {
  post([last = std::string(last)](Connection& to, const Exchange* exchange) { to.end_events(exchange, last); });
}

void Exchange::fail(const std::exception_ptr& why) noexcept {
  try {
    post([why](Connection& to, const Exchange* exchange) { to.fail_exchange(exchange, why); });
  } catch (...) {
    // There was no memory to post it. Stopping `io` needs none, and Server::run() then looks for such failures.
    {
      const std::lock_guard lock(mutex_);
      lost_failure_ = why;
    }
    shared_.has_lost_answers = true;
    shared_.io.stop();
  }
}

std::exception_ptr Exchange::lost_failure() {
  const std::lock_guard lock(mutex_);
  return lost_failure_;
}

void Exchange::on_cancel(std::function<void()> cancel) {
  {
    const std::lock_guard lock(mutex_);
    if (!cancelled_) {
      cancel_ = std::move(cancel);
      return;
    }
  }
  cancel();
}

void Exchange::cancel() noexcept {
  std::function<void()> call;
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    call = std::exchange(cancel_, nullptr);
  }
  try {
    if (call) call();
  } catch (...) {
    shared_.log_failure(std::current_exception());
  }
}

void Exchange::note(const std::string& key, OrderedJson value) {
  const std::lock_guard lock(mutex_);
  notes_[key] = std::move(value);
}

OrderedJson Exchange::notes() {
  const std::lock_guard lock(mutex_);
  return notes_;
}

}  // namespace alibi::serve::network
