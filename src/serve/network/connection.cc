#include "serve/network/connection.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/bind_handler.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/status.hpp>
#include <cerrno>
#include <cstdio>
#include <utility>

namespace alibi::serve::network {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

/// A client that does not take its answer is disconnected when this much waits for it.
constexpr size_t most_unsent = size_t{8} << 20;
constexpr size_t most_drained = size_t{64} << 20;
constexpr double linger_seconds = 2, probe_seconds = 0.5;
constexpr int client_gone = 499;

}  // namespace

void Connections::log(const OrderedJson& line) const {
  if (!options.logs_requests) return;
  const auto now = std::chrono::time_point_cast<std::chrono::seconds>(std::chrono::system_clock::now());
  OrderedJson dated{
      {"time", fmt::format("{:%Y-%m-%dT%H:%M:%S}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(now)))}};
  dated.update(line);
  const std::string text = to_text(dated) + '\n';
  std::fwrite(text.data(), 1, text.size(), stderr);  // a log that nobody reads is no reason to end
}

template <class Use>
void Exchange::post(Use use) {
  asio::post(io_, [self = shared_from_this(), use = std::move(use)] {
    if (const auto connection = self->connection_.lock()) use(*connection, self.get());
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
void Exchange::end_events() {
  post([](Connection& to, const Exchange* exchange) { to.end_events(exchange); });
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

void Exchange::cancel() {
  std::function<void()> call;
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    call = std::exchange(cancel_, nullptr);
  }
  if (call) call();
}

void Exchange::note(const std::string& key, OrderedJson value) {
  const std::lock_guard lock(mutex_);
  notes_[key] = std::move(value);
}

OrderedJson Exchange::notes() {
  const std::lock_guard lock(mutex_);
  return notes_;
}

Connection::Connection(Socket socket, Connections& shared)
    : socket_(std::move(socket)), shared_(shared), timer_(shared.io), write_timer_(shared.io), probe_timer_(shared.io) {
  Error error;
  const auto endpoint = socket_.remote_endpoint(error);
  if (!error) remote_ = endpoint.address().to_string(error);
  socket_.set_option(asio::ip::tcp::no_delay(true), error);
  shared_.all.insert(this);
}

Connection::~Connection() {
  shared_.all.erase(this);
  if (shared_.ended) shared_.ended();
}

void Connection::arm(asio::steady_timer& timer, double seconds, std::function<void()> late) {
  timer.expires_after(std::chrono::milliseconds(static_cast<int64_t>(1000 * seconds)));
  timer.async_wait([self = shared_from_this(), &timer, late = std::move(late)](const Error& error) {
    // A timer that was set again after it expired has another time.
    if (!error && timer.expiry() <= std::chrono::steady_clock::now()) late();
  });
}

void Connection::start() { wait_for_request(); }

void Connection::refuse() {
  answer_and_close({503, "the server has too many connections; try again later", "", "too_many_connections"});
}

void Connection::stop() {
  keeps_alive_ = false;
  if (current_ == nullptr && !is_closing_) close();
}

void Connection::drop(int logged_status) {
  if (current_ != nullptr) {
    status_ = logged_status;
    current_->cancel();
    answered();
  }
  close();
}

void Connection::close() {
  is_closing_ = true;
  Error ignored;
  for (asio::steady_timer* timer : {&timer_, &write_timer_, &probe_timer_}) timer->cancel(ignored);
  socket_.shutdown(Socket::shutdown_both, ignored);
  socket_.close(ignored);
}

void Connection::wait_for_request() {
  if (buffer_.size() > 0) return read_header();
  arm(timer_, shared_.options.idle_seconds, [this] { close(); });
  socket_.async_wait(Socket::wait_read, [self = shared_from_this()](const Error& error) {
    if (!error && !self->is_closing_) self->read_header();
  });
}

void Connection::read_header() {
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(shared_.options.max_header_bytes));
  parser_->body_limit(static_cast<uint64_t>(shared_.options.max_body_bytes));
  timed_out_ = false;
  const auto late = [this] {
    timed_out_ = true;
    Error ignored;
    socket_.cancel(ignored);
  };
  arm(timer_, shared_.options.header_seconds, late);
  http::async_read_header(socket_, buffer_, *parser_, [self = shared_from_this(), late](const Error& error, size_t) {
    if (self->is_closing_) return;
    if (error) return self->refuse_request(error);
    self->arm(self->timer_, self->shared_.options.body_seconds, late);
    if (boost::beast::iequals(self->parser_->get()[http::field::expect], "100-continue")) {
      self->write("HTTP/1.1 100 Continue\r\n\r\n");
    }
    self->read_body();
  });
}

void Connection::read_body() {
  http::async_read(socket_, buffer_, *parser_, [self = shared_from_this()](const Error& error, size_t) {
    if (self->is_closing_) return;
    error ? self->refuse_request(error) : self->handle();
  });
}

void Connection::refuse_request(const Error& error) {
  const ServerOptions& options = shared_.options;
  if (timed_out_) return answer_and_close({408, "the request did not arrive in time", "", "timeout"});
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return answer_and_close(
        {431, fmt::format("the header of the request has more than {} bytes", options.max_header_bytes)});
  }
  if (error == http::error::body_limit) {
    return answer_and_close(
        {413, fmt::format("the body of the request has more than {} bytes", options.max_body_bytes)});
  }
  if (error == http::error::end_of_stream) return close();
  if (error.category() == http::make_error_code(http::error::bad_method).category()) {
    return answer_and_close({400, "the request is not HTTP: " + error.message(), "", "invalid_http"});
  }
  close();
}

void Connection::answer_and_close(const ApiError& error) {
  keeps_alive_ = false;
  std::string method, path;
  if (parser_ && parser_->is_header_done()) {
    method = std::string(parser_->get().method_string());
    path = std::string(parser_->get().target());
  }
  current_ = std::make_shared<Exchange>(shared_.io, weak_from_this(), std::move(method), std::move(path));
  reply(current_.get(), error.reply());
}

void Connection::handle() {
  Parser::value_type message = parser_->release();
  parser_.reset();
  keeps_alive_ = message.keep_alive() && !shared_.stopping;
  is_http_1_0_ = message.version() < 11;
  const std::string_view target(message.target().data(), message.target().size());
  HttpRequest request{.method = std::string(message.method_string()),
                      .path = std::string(target.substr(0, target.find('?'))),
                      .authorization = std::string(message[http::field::authorization]),
                      .body = std::move(message.body())};
  current_ = std::make_shared<Exchange>(shared_.io, weak_from_this(), request.method, request.path);
  const std::shared_ptr<Exchange> exchange = current_;
  arm(timer_, shared_.options.request_seconds, [this, exchange] {
    if (current_ != exchange) return;
    const Reply late = ApiError{503, "the request took too long and was cancelled", "", "timeout"}.reply();
    exchange->cancel();
    if (!streams_) return reply(exchange.get(), late);
    event(exchange.get(), late.body);
    end_events(exchange.get());
  });
  watch(exchange);
  shared_.api->handle(std::move(request), exchange);
}

/// Notices that the client closes the connection while its request runs. A client that has only ended its sending side
/// still waits for the answer, so after that the connection is probed.
void Connection::watch(const std::shared_ptr<Exchange>& exchange) {
  socket_.async_wait(Socket::wait_read, [self = shared_from_this(), exchange](const Error& error) {
    if (error || self->is_closing_ || self->current_ != exchange) return;
    char byte;
    const ssize_t count = ::recv(self->socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (count > 0) return;  // the next request
    if (count < 0) return errno == EAGAIN ? self->watch(exchange) : self->drop(client_gone);
    self->half_closed_ = true;
    self->keeps_alive_ = false;
    self->probe(exchange);
  });
}

/// Sends what no client minds, which fails if the connection is closed: a comment of the stream, or another interim
/// answer.
void Connection::probe(const std::shared_ptr<Exchange>& exchange) {
  if (is_closing_ || complete_ || current_ != exchange) return;
  if (streams_) {
    write(is_http_1_0_ ? ":\n\n" : "3\r\n:\n\n\r\n");
  } else if (!is_http_1_0_) {
    write("HTTP/1.1 100 Continue\r\n\r\n");
  }
  arm(probe_timer_, probe_seconds, [this, exchange] { probe(exchange); });
}

std::string Connection::head(int status, const Reply* reply) const {
  std::string text = fmt::format("HTTP/1.1 {} {}\r\nServer: alibi\r\nContent-Type: {}\r\n", status,
                                 std::string(http::obsolete_reason(static_cast<http::status>(status))),
                                 reply != nullptr ? reply->type : "text/event-stream; charset=utf-8");
  if (reply != nullptr) {
    for (const auto& [name, value] : reply->headers) text += fmt::format("{}: {}\r\n", name, value);
    text += fmt::format("Content-Length: {}\r\n", reply->body.size());
  } else {
    text += "Cache-Control: no-cache\r\n";
    if (!is_http_1_0_) text += "Transfer-Encoding: chunked\r\n";
  }
  return text + (keeps_alive_ ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n");
}

void Connection::reply(const Exchange* exchange, const Reply& reply) {
  if (is_closing_ || current_.get() != exchange || status_ != 0) return;
  status_ = reply.status;
  complete_ = true;
  std::string bytes = head(reply.status, &reply);
  write(bytes += reply.body);
}

void Connection::begin_events(const Exchange* exchange) {
  if (is_closing_ || current_.get() != exchange || status_ != 0) return;
  status_ = 200;
  streams_ = true;
  if (is_http_1_0_) keeps_alive_ = false;
  write(head(200, nullptr));
}

void Connection::event(const Exchange* exchange, const std::string& data) {
  if (is_closing_ || current_.get() != exchange || !streams_ || complete_) return;
  const std::string text = fmt::format("data: {}\n\n", data);
  write(is_http_1_0_ ? text : fmt::format("{:x}\r\n{}\r\n", text.size(), text));
}

void Connection::end_events(const Exchange* exchange) {
  if (is_closing_ || current_.get() != exchange || !streams_ || complete_) return;
  complete_ = true;
  write(is_http_1_0_ ? "" : "0\r\n\r\n");
}

void Connection::write(std::string bytes) {
  unsent_bytes_ += bytes.size();
  if (streams_ && unsent_bytes_ > most_unsent) return drop(client_gone);
  unsent_.push_back(std::move(bytes));
  if (unsent_.size() == 1) write_next();
}

void Connection::write_next() {
  arm(write_timer_, shared_.options.write_seconds, [this] { drop(client_gone); });
  asio::async_write(socket_, asio::buffer(unsent_.front()), [self = shared_from_this()](const Error& error, size_t) {
    if (self->is_closing_) return;
    if (error) return self->drop(client_gone);
    self->unsent_bytes_ -= self->unsent_.front().size();
    self->sent_bytes_ += self->unsent_.front().size();
    self->unsent_.pop_front();
    if (!self->unsent_.empty()) return self->write_next();
    Error ignored;
    self->write_timer_.cancel(ignored);
    if (!self->complete_) return;
    self->answered();
    self->keeps_alive_ && !self->shared_.stopping ? self->wait_for_request() : self->linger();
  });
}

/// Logs the exchange and makes room for the next one.
void Connection::answered() {
  const std::shared_ptr<Exchange> exchange = std::exchange(current_, nullptr);
  Error ignored;
  timer_.cancel(ignored);
  probe_timer_.cancel(ignored);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - exchange->start;
  OrderedJson line{{"remote", remote_}, {"method", exchange->method}, {"path", exchange->path},
                   {"status", status_}, {"seconds", seconds.count()}, {"bytes", sent_bytes_}};
  line.update(exchange->notes());
  shared_.log(line);
  // Paths that clients invent must not become names of counters.
  const std::string path = Api::is_endpoint(exchange->path) ? exchange->path : "other";
  shared_.api->metrics().count_request(path, status_, seconds.count());
  status_ = 0;
  sent_bytes_ = 0;
  streams_ = complete_ = false;
}

void Connection::linger() {
  Error ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
  arm(timer_, linger_seconds, [this] { close(); });
  drain();
}

void Connection::drain() {
  socket_.async_read_some(asio::buffer(discarded_), [self = shared_from_this()](const Error& error, size_t count) {
    if (self->is_closing_) return;
    self->drained_ += count;
    error || self->drained_ > most_drained ? self->close() : self->drain();
  });
}

}  // namespace alibi::serve::network
