// HTTP requests and replies as the endpoints see them, without the network.
#pragma once

#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace alibi::serve {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

struct HttpRequest {
  std::string method, path;   ///< the path without the query
  std::string authorization;  ///< value of the header, or empty
  std::string body;
};

struct Reply {
  int status = 200;
  std::string body;
  std::string type = "application/json";
  std::map<std::string, std::string> headers = {};
};

/// Invalid UTF-8 becomes U+FFFD; NaN and infinities become null.
std::string to_text(const OrderedJson& json);
template <class T>
OrderedJson or_null(const std::optional<T>& value) {
  return value ? OrderedJson(*value) : OrderedJson();
}
inline Reply json_reply(const OrderedJson& json) { return {200, to_text(json)}; }

/// A request that cannot be answered, in the shape of OpenAI's API.
struct ApiError {
  int status = 400;
  std::string message;
  std::string param = {};  ///< the field that is wrong, or empty
  std::string code = {};

  /// {"error": {"message", "type", "param", "code"}}
  Reply reply() const;
};

/// Where the answer to one request goes. Its functions may be called from any thread.
class Responder {
 public:
  virtual ~Responder() = default;

  /// The whole answer. Later calls have no effect.
  virtual void reply(Reply reply) = 0;
  /// Or a stream of server-sent events.
  virtual void begin_events() = 0;
  virtual void event(std::string_view data) = 0;
  /// The last event and the end of the stream together, so that a failure leaves both or neither.
  virtual void end_events(std::string_view last) = 0;
  /// Ends the answer with what failed: an error reply, or the last event of a stream that has begun. The log has the
  /// cause. Later calls have no effect.
  virtual void fail(const std::exception_ptr& why) noexcept = 0;
  /// Calls `cancel`, on any thread, if nobody waits for the answer any more: at once if that is so already.
  virtual void on_cancel(std::function<void()> cancel) = 0;
  /// A field of the line in the log.
  virtual void note(const std::string& key, OrderedJson value) = 0;
};

/// Runs `work`. What it throws ends the answer.
void answer(Responder& responder, const std::function<void()>& work) noexcept;
/// The error that a client gets for an exception.
ApiError api_error_for(const std::exception_ptr& why);

/// Tests set this function before the server starts, to throw at a step. It is called on the thread of the step.
inline void (*before_step)(const char* name) = nullptr;
inline void step(const char* name) {
  if (before_step != nullptr) before_step(name);
}

}  // namespace alibi::serve
