// Parses one HTTP request. Beast knows the syntax; this class keeps the parts that the server uses, within limits.
#pragma once

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <cstddef>
#include <cstdint>
#include <string>

#include "serve/http.h"

namespace alibi::serve::network {

/// Beast's own container of fields throws for a field of more than 64 KiB, also in the trailer of a chunked body. This
/// class stores two fields only. All others count into the limit and are forgotten.
class RequestParser : public boost::beast::http::basic_parser<true> {
 public:
  RequestParser(int64_t header_bytes, int64_t body_bytes) : header_left_(header_bytes) {
    header_limit(static_cast<uint32_t>(header_bytes));
    body_limit(static_cast<uint64_t>(body_bytes));
    eager(true);
  }

  HttpRequest& request() { return request_; }
  bool is_http_1_0() const { return version_ < 11; }
  /// The client waits for an interim answer before it sends the body.
  bool expects_continue() const { return expects_continue_ && !is_http_1_0(); }

 private:
  using Error = boost::beast::error_code;
  using Field = boost::beast::http::field;
  using Text = boost::beast::string_view;

  /// Bytes of the request line, the header or the trailer.
  void count(size_t bytes, Error& error) {
    header_left_ -= static_cast<int64_t>(bytes);
    if (header_left_ < 0) error = boost::beast::http::error::header_limit;
  }

  void on_request_impl(boost::beast::http::verb, Text method, Text target, int version, Error& error) override {
    request_.method.assign(method.data(), method.size());
    request_.path.assign(target.data(), std::min(target.size(), target.find('?')));
    version_ = version;
    count(method.size() + target.size(), error);
  }
  void on_response_impl(int, Text, int, Error&) override {}
  void on_field_impl(Field field, Text name, Text value, Error& error) override {
    count(name.size() + value.size() + 4, error);
    if (error || is_header_done()) return;  // a field of the trailer
    if (field == Field::authorization) request_.authorization.assign(value.data(), value.size());
    if (field == Field::expect) expects_continue_ = boost::beast::iequals(value, "100-continue");
  }
  // Newer versions of Beast call this for fields of the trailer. In older versions it overrides nothing.
  void on_trailer_field_impl(Field, Text name, Text value, Error& error) {  // NOLINT(modernize-use-override)
    count(name.size() + value.size() + 4, error);
  }
  void on_header_impl(Error&) override {}
  void on_body_init_impl(const boost::optional<uint64_t>&, Error&) override {}
  size_t on_body_impl(Text part, Error&) override {
    request_.body.append(part.data(), part.size());
    return part.size();
  }
  void on_chunk_header_impl(uint64_t, Text, Error&) override {}
  size_t on_chunk_body_impl(uint64_t, Text part, Error& error) override { return on_body_impl(part, error); }
  void on_finish_impl(Error&) override {}

  HttpRequest request_;
  int64_t header_left_;
  int version_ = 11;
  bool expects_continue_ = false;
};

}  // namespace alibi::serve::network
