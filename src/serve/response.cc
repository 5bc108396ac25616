#include "serve/response.h"

#include <utility>

namespace alibi::serve {
namespace {

/// Of the message in a response: resp_1 has msg_1.
std::string item_id(const OrderedJson& envelope) { return "msg" + envelope["id"].get<std::string>().substr(4); }

OrderedJson text_part(const OrderedJson& text, const OrderedJson& logprobs) {
  return {{"type", "output_text"}, {"text", text}, {"annotations", OrderedJson::array()}, {"logprobs", logprobs}};
}

OrderedJson message(const std::string& id, const char* status, OrderedJson content) {
  return {{"id", id}, {"type", "message"}, {"role", "assistant"}, {"status", status}, {"content", std::move(content)}};
}

OrderedJson logprobs_of(const OrderedJson& choice) {
  const OrderedJson& logprobs = choice["logprobs"];
  return logprobs.is_null() ? OrderedJson::array() : logprobs["content"];
}

}  // namespace

OrderedJson ResponseJson::response(const OrderedJson& envelope, const char* status) const {
  OrderedJson all{{"id", envelope["id"]}, {"object", "response"},       {"created_at", envelope["created"]},
                  {"status", status},     {"model", envelope["model"]}, {"output", OrderedJson::array()},
                  {"usage", nullptr},     {"error", nullptr},           {"incomplete_details", nullptr}};
  all.update(fields_);
  return all;
}

OrderedJson ResponseJson::event(const char* type, const OrderedJson& members, bool has_item, bool has_part) {
  OrderedJson all{{"type", std::string("response.") + type}, {"sequence_number", sequence_number_++}};
  if (has_item) all["output_index"] = 0;
  if (has_part) all.update({{"item_id", item_}, {"content_index", 0}});
  all.update(members);
  return all;
}

std::vector<OrderedJson> ResponseJson::begin(const OrderedJson& envelope) {
  item_ = item_id(envelope);
  const OrderedJson empty = response(envelope, "in_progress");
  return {event("created", {{"response", empty}}, false, false),
          event("in_progress", {{"response", empty}}, false, false),
          event("output_item.added", {{"item", message(item_, "in_progress", OrderedJson::array())}}, true, false),
          event("content_part.added", {{"part", text_part("", OrderedJson::array())}})};
}

OrderedJson ResponseJson::delta(const OrderedJson& choice) {
  return event("output_text.delta",
               {{"delta", choice["delta"].value("content", "")}, {"logprobs", logprobs_of(choice)}});
}

OrderedJson ResponseJson::whole(const OrderedJson& chat_completion) const {
  const OrderedJson& choice = chat_completion["choices"][0];
  const bool is_cut = choice["finish_reason"] == "length";
  const char* const status = is_cut ? "incomplete" : "completed";
  OrderedJson all = response(chat_completion, status);
  const OrderedJson part = text_part(choice["message"]["content"], logprobs_of(choice));
  all["output"].push_back(message(item_id(chat_completion), status, OrderedJson::array({part})));
  const OrderedJson& usage = chat_completion["usage"];
  all["usage"] = {{"input_tokens", usage["prompt_tokens"]},
                  {"input_tokens_details",
                   {{"cached_tokens", usage["prompt_tokens_details"]["cached_tokens"]}, {"cache_write_tokens", 0}}},
                  {"output_tokens", usage["completion_tokens"]},
                  {"output_tokens_details", {{"reasoning_tokens", 0}}},
                  {"total_tokens", usage["total_tokens"]}};
  if (is_cut) all["incomplete_details"] = {{"reason", "max_output_tokens"}};
  all["alibi"] = chat_completion["alibi"];
  return all;
}

std::vector<OrderedJson> ResponseJson::end(const OrderedJson& response) {
  const OrderedJson& item = response["output"][0];
  const OrderedJson& part = item["content"][0];
  return {event("output_text.done", {{"text", part["text"]}, {"logprobs", part["logprobs"]}}),
          event("content_part.done", {{"part", part}}), event("output_item.done", {{"item", item}}, true, false),
          event(response["status"].get<std::string>().c_str(), {{"response", response}}, false, false)};
}

}  // namespace alibi::serve
