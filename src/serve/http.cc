#include "serve/http.h"

#include <new>

#include "alibi/engine.h"
#include "alibi/error.h"
#include "core/memory_reserve.h"

namespace alibi::serve {

std::string to_text(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

Reply ApiError::reply() const {
  const char* const type = status == 401   ? "authentication_error"
                           : status == 404 ? "not_found_error"
                           : status == 429 ? "rate_limit_error"
                           : status >= 500 ? "server_error"
                                           : "invalid_request_error";
  const auto text_or_null = [](const std::string& text) { return text.empty() ? OrderedJson() : OrderedJson(text); };
  Reply reply{
      status,
      to_text(
          {{"error",
            {{"message", message}, {"type", type}, {"param", text_or_null(param)}, {"code", text_or_null(code)}}}})};
  if (status == 401) reply.headers["WWW-Authenticate"] = "Bearer";
  if (status == 429 || status == 503) reply.headers["Retry-After"] = "1";
  return reply;
}

ApiError api_error_for(const std::exception_ptr& why) {
  try {
    std::rethrow_exception(why);
  } catch (const ApiError& error) {
    return error;
  } catch (const EngineBusy& error) {
    return {429, error.what(), "", "queue_full"};
  } catch (const UsageError& error) {
    return {400, error.what()};
  } catch (const std::bad_alloc&) {
    core::keep_memory_reserve();
    return {503, "there is no memory for the request", "", "no_memory"};
  } catch (const std::exception& error) {
    return {500, error.what()};
  } catch (...) {
    return {500, "an exception of an unknown type"};
  }
}

void answer(Responder& responder, const std::function<void()>& work) noexcept {
  try {
    step("answer");
    work();
  } catch (...) {
    responder.fail(std::current_exception());
  }
}

}  // namespace alibi::serve
