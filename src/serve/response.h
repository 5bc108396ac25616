// The answer of /v1/responses, made of the chat completion that Completion assembles.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "serve/http.h"

namespace alibi::serve {

/// A response has one message with one text. As a stream it is a sequence of numbered events.
class ResponseJson {
 public:
  /// `fields`: what the response repeats of its request.
  explicit ResponseJson(OrderedJson fields) : fields_(std::move(fields)) {}

  /// The events before the text. `envelope`: id, time and model.
  std::vector<OrderedJson> begin(const OrderedJson& envelope);
  /// The event that adds to the text. `choice`: that of a chunk of a chat completion.
  OrderedJson delta(const OrderedJson& choice);
  /// The response to which the events add up.
  OrderedJson whole(const OrderedJson& chat_completion) const;
  /// The events after the text; the last one has the response.
  std::vector<OrderedJson> end(const OrderedJson& response);

 private:
  OrderedJson response(const OrderedJson& envelope, const char* status) const;
  /// With the number of the event, and the item and part that it is about.
  OrderedJson event(const char* type, const OrderedJson& members, bool has_item = true, bool has_part = true);

  OrderedJson fields_;
  std::string item_;
  int64_t sequence_number_ = 0;
};

}  // namespace alibi::serve
