#include "serve/network/connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/write.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/status.hpp>
#include <utility>

namespace alibi::serve::network {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

/// A client that does not take its answer is disconnected when this much waits for it.
constexpr size_t max_unsent = size_t{8} << 20;
constexpr size_t max_drained = size_t{64} << 20;
constexpr size_t max_read_at_once = size_t{64} << 10;
constexpr double linger_seconds = 2, probe_seconds = 0.5;
constexpr int client_gone = 499;

}  // namespace

Connection::Connection(Socket socket, Connections& shared)
    : socket_(std::move(socket)), shared_(shared), timer_(shared.io), write_timer_(shared.io), probe_timer_(shared.io) {
  Error error;
  const auto endpoint = socket_.remote_endpoint(error);
  if (!error) remote_ = endpoint.address().to_string(error);
  socket_.set_option(asio::ip::tcp::no_delay(true), error);
  socket_.non_blocking(true, error);
  shared_.all.insert(this);
}

Connection::~Connection() {
  shared_.all.erase(this);
  if (shared_.ended) shared_.ended();
}

void Connection::arm(asio::steady_timer& timer, double seconds, std::function<void()> late) {
  step("set a timer");
  timer.expires_after(duration_of(seconds));
  timer.async_wait(handler([&timer, late = std::move(late)](const Error& error) {
    // A timer that was set again after it expired has another time.
    if (error || timer.expiry() > std::chrono::steady_clock::now()) return;
    step("timer");
    late();
  }));
}

void Connection::start() { parse(); }

void Connection::refuse() {
  refuse_request({503, "the server has too many connections; try again later", "", "too_many_connections"});
}

void Connection::stop() noexcept {
  keeps_alive_ = false;
  if (current_ == nullptr && !lingers_) close();
}

void Connection::drop(int logged_status) noexcept {
  if (current_ != nullptr) {
    status_ = logged_status;
    current_->cancel();
    answered();
  }
  close();
}

void Connection::fail(const std::exception_ptr& why) noexcept {
  shared_.log_failure(why);
  try {
    if (status_ == 0 && unsent_.empty()) {
      keeps_alive_ = false;
      if (current_ != nullptr) return fail_exchange(current_.get(), why);
      if (parser_) return answer_and_close(why);
    }
  } catch (...) {
    shared_.log_failure(std::current_exception());
  }
  drop(500);  // there is no request, a part of the answer was sent, or the error cannot be sent either
}

void Connection::fail_lost() noexcept {
  if (current_ == nullptr) return;
  if (const std::exception_ptr why = current_->lost_failure()) run([&] { fail_exchange(current_.get(), why); });
}

void Connection::close() noexcept {
  is_closed_ = true;
  Error ignored;
  for (asio::steady_timer* timer : {&timer_, &write_timer_, &probe_timer_}) timer->cancel(ignored);
  socket_.shutdown(Socket::shutdown_both, ignored);
  socket_.close(ignored);
}

/// One wait at a time. There is always one, unless enough bytes are in the buffer or the client has ended its sending
/// side: so the server notices that a client leaves, also while its request runs.
void Connection::wait_to_read() {
  if (waits_to_read_ || has_ended_) return;
  step("wait for bytes");
  socket_.async_wait(Socket::wait_read, handler([this](const Error& error) {
                       waits_to_read_ = false;
                       step("receive");
                       receive(error);
                     }));
  waits_to_read_ = true;
}

void Connection::receive(Error error) {
  const auto room = static_cast<size_t>(shared_.options.max_header_bytes) - buffer_.size();
  const size_t most = std::min(max_read_at_once, room);
  const size_t count = error ? 0 : socket_.read_some(buffer_.prepare(most), error);
  if (error == asio::error::would_block) return wait_to_read();
  if (error && error != asio::error::eof) return drop(client_gone);
  has_ended_ = error == asio::error::eof;
  if (lingers_) {
    drained_ += count;
    return has_ended_ || drained_ > max_drained ? close() : wait_to_read();
  }
  buffer_.commit(count);
  if (current_ == nullptr) return parse();
  // The client sends its next request, or it leaves. One that has only ended its sending side still waits for the
  // answer. After that, or if too much has arrived, the connection is probed.
  if (has_ended_ && buffer_.size() == 0) keeps_alive_ = false;
  has_ended_ || count == room ? probe(current_) : wait_to_read();
}

/// Reads the next request from the buffer.
void Connection::parse() {
  const ServerOptions& options = shared_.options;
  const auto late = [this] {
    if (parser_) refuse_request({408, "the request did not arrive in time", "", "timeout"});
  };
  if (!parser_) {
    if (buffer_.size() == 0) {
      if (has_ended_) return close();
      arm(timer_, options.idle_seconds, [this] { close(); });
      return wait_to_read();
    }
    arm(timer_, options.header_seconds, late);
    parser_.emplace(options.max_header_bytes, options.max_body_bytes);
  }
  const bool had_header = parser_->is_header_done();
  Error error;
  if (buffer_.size() > 0) buffer_.consume(parser_->put(buffer_.data(), error));
  if (!error && parser_->is_done()) return handle();
  if (!error || error == http::error::need_more) {
    error = {};
    if (has_ended_) error = http::error::partial_message;
    // The parser takes the header, a line between chunks, and the trailer as a whole.
    if (static_cast<int64_t>(buffer_.size()) >= options.max_header_bytes) error = http::error::header_limit;
  }
  if (error == http::error::header_limit) {
    return refuse_request(
        {431, fmt::format("the header of the request has more than {} bytes", options.max_header_bytes)});
  }
  if (error == http::error::body_limit) {
    return refuse_request({413, fmt::format("the body of the request has more than {} bytes", options.max_body_bytes)});
  }
  if (error) {
    return refuse_request({400, "the request is not HTTP: " + error.message(), "", "invalid_http"});
  }
  if (!had_header && parser_->is_header_done()) {
    arm(timer_, options.body_seconds, late);
    if (parser_->expects_continue()) write("HTTP/1.1 100 Continue\r\n\r\n");
  }
  wait_to_read();
}

void Connection::refuse_request(const ApiError& error) { answer_and_close(std::make_exception_ptr(error)); }

void Connection::answer_and_close(const std::exception_ptr& why) {
  keeps_alive_ = false;
  HttpRequest request = parser_ ? std::move(parser_->request()) : HttpRequest{};
  parser_.reset();
  current_ = std::make_shared<Exchange>(shared_, weak_from_this(), std::move(request.method), std::move(request.path));
  fail_exchange(current_.get(), why);
}

void Connection::handle() {
  keeps_alive_ = parser_->keep_alive() && !shared_.stopping && !(has_ended_ && buffer_.size() == 0);
  is_http_1_0_ = parser_->is_http_1_0();
  current_ = std::make_shared<Exchange>(shared_, weak_from_this(), parser_->request().method, parser_->request().path);
  HttpRequest request = std::move(parser_->request());
  parser_.reset();
  const std::shared_ptr<Exchange> exchange = current_;
  step("handle");
  arm(timer_, shared_.options.request_seconds, [this, exchange] {
    const ApiError late{503, "the request took too long and was cancelled", "", "timeout"};
    fail_exchange(exchange.get(), std::make_exception_ptr(late));
  });
  has_ended_ ? probe(exchange) : wait_to_read();
  shared_.api->handle(std::move(request), exchange);
}

/// Sends now and then what no client minds, which fails if the connection is closed: a comment of the stream, or
/// another interim answer.
void Connection::probe(const std::shared_ptr<Exchange>& exchange) {
  arm(probe_timer_, probe_seconds, [this, exchange] {
    if (complete_ || current_ != exchange) return;
    if (streams_) {
      write(is_http_1_0_ ? ":\n\n" : "3\r\n:\n\n\r\n");
    } else if (!is_http_1_0_) {
      write("HTTP/1.1 100 Continue\r\n\r\n");
    }
    probe(exchange);
  });
}

std::string Connection::head(int status, const Reply* reply) const {
  std::string text = fmt::format("HTTP/1.1 {} {}\r\nServer: alibi\r\nContent-Type: {}\r\n", status,
                                 std::string(http::obsolete_reason(static_cast<http::status>(status))),
                                 reply != nullptr ? reply->type : "text/event-stream; charset=utf-8");
  const std::string& origin = shared_.options.api.allow_origin;
  if (!origin.empty()) {
    text += fmt::format("Access-Control-Allow-Origin: {}\r\n{}", origin, origin == "*" ? "" : "Vary: Origin\r\n");
  }
  if (reply != nullptr) {
    for (const auto& [name, value] : reply->headers) text += fmt::format("{}: {}\r\n", name, value);
    if (status != 204) text += fmt::format("Content-Length: {}\r\n", reply->body.size());
  } else {
    text += "Cache-Control: no-cache\r\n";
    if (!is_http_1_0_) text += "Transfer-Encoding: chunked\r\n";
  }
  return text + (keeps_alive_ ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n");
}

void Connection::reply(const Exchange* exchange, const Reply& reply) {
  if (is_closed_ || current_.get() != exchange || status_ != 0) return;
  step("reply");
  std::string bytes = head(reply.status, &reply);
  if (exchange->method != "HEAD") bytes += reply.body;
  status_ = reply.status;
  complete_ = true;
  write(std::move(bytes));
}

void Connection::begin_events(const Exchange* exchange) {
  if (is_closed_ || current_.get() != exchange || status_ != 0) return;
  step("begin_events");
  if (is_http_1_0_) keeps_alive_ = false;
  std::string bytes = head(200, nullptr);
  status_ = 200;
  streams_ = true;
  write(std::move(bytes));
}

void Connection::event(const Exchange* exchange, const std::string& data) {
  if (is_closed_ || current_.get() != exchange || !streams_ || complete_) return;
  step("event");
  write(bytes_of_event(data));
}

std::string Connection::bytes_of_event(const std::string& data) const {
  const std::string text = fmt::format("data: {}\n\n", data);
  return is_http_1_0_ ? text : fmt::format("{:x}\r\n{}\r\n", text.size(), text);
}

void Connection::end_events(const Exchange* exchange, const std::string& last) {
  if (is_closed_ || current_.get() != exchange || !streams_ || complete_) return;
  step("end_events");
  const std::string bytes = bytes_of_event(last) + (is_http_1_0_ ? "" : "0\r\n\r\n");
  complete_ = true;
  write(bytes);
}

void Connection::fail_exchange(const Exchange* exchange, const std::exception_ptr& why) {
  if (is_closed_ || current_.get() != exchange || complete_) return;
  current_->cancel();
  const ApiError error = api_error_for(why);
  if (error.status >= 500) current_->note("error", error.message);
  if (!streams_) return reply(exchange, error.reply());
  end_events(exchange, error.reply().body);
}

void Connection::write(std::string bytes) {
  unsent_bytes_ += bytes.size();
  if (streams_ && unsent_bytes_ > max_unsent) return drop(client_gone);
  unsent_.push_back(std::move(bytes));
  if (unsent_.size() == 1) write_next();
}

void Connection::write_next() {
  arm(write_timer_, shared_.options.write_seconds, [this] { drop(client_gone); });
  step("write");
  asio::async_write(socket_, asio::buffer(unsent_.front()), handler([this](const Error& error, size_t) {
                      if (error) return drop(client_gone);
                      step("written");
                      unsent_bytes_ -= unsent_.front().size();
                      sent_bytes_ += unsent_.front().size();
                      unsent_.pop_front();
                      if (!unsent_.empty()) return write_next();
                      Error ignored;
                      write_timer_.cancel(ignored);
                      if (!complete_) return;
                      answered();
                      keeps_alive_ && !shared_.stopping ? parse() : linger();
                    }));
}

/// Logs the exchange and makes room for the next one.
void Connection::answered() noexcept {
  const std::shared_ptr<Exchange> exchange = std::exchange(current_, nullptr);
  const int status = std::exchange(status_, 0);
  const size_t bytes = std::exchange(sent_bytes_, 0);
  streams_ = complete_ = false;
  Error ignored;
  timer_.cancel(ignored);
  probe_timer_.cancel(ignored);
  try {
    step("answered");
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - exchange->start;
    // Paths that clients invent must not become names of counters.
    const std::string path(Api::endpoint_of(exchange->path));
    shared_.api->metrics().count_request(path, status, seconds.count());
    OrderedJson line{{"remote", remote_}, {"method", exchange->method}, {"path", exchange->path},
                     {"status", status},  {"seconds", seconds.count()}, {"bytes", bytes}};
    line.update(exchange->notes());
    shared_.log(line);
  } catch (...) {
    shared_.log_failure(std::current_exception());
  }
}

void Connection::linger() {
  lingers_ = true;
  Error ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
  if (has_ended_) return close();
  buffer_.clear();
  arm(timer_, linger_seconds, [this] { close(); });
  wait_to_read();
}

}  // namespace alibi::serve::network
