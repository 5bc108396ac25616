#include "serve/api.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "core/check.h"

namespace alibi::serve {

struct Api::Route {
  const char *method, *path;  // a path that ends with / is that of all longer ones
  void (Api::*run)(const HttpRequest&, const Responding&);
  bool is_open = false;  // needs no key

  bool takes(std::string_view other) const {
    const std::string_view own = path;
    return other == own || (own.size() > 1 && own.ends_with('/') && other.starts_with(own));
  }
};

const std::vector<Api::Route>& Api::routes() {
  static const std::vector<Route> all = {
      {"GET", "/", &Api::show_page, true},
      {"GET", "/health", &Api::health, true},
      {"GET", "/v1/health", &Api::health, true},
      {"GET", "/v1/models", &Api::models},
      {"GET", "/v1/models/", &Api::model},
      {"GET", "/metrics", &Api::write_metrics},
      {"GET", "/props", &Api::props},
      {"GET", "/tokenizer_info", &Api::tokenizer_info},
      {"POST", "/tokenize", &Api::tokenize},
      {"POST", "/detokenize", &Api::detokenize},
      {"POST", "/v1/completions", &Api::completions},
      {"POST", "/v1/chat/completions", &Api::chat},
      {"POST", "/v1/responses", &Api::responses},
      {"POST", "/v1/embeddings", &Api::embeddings},
      {"POST", "/v1/rerank", &Api::rerank},
      {"POST", "/v2/rerank", &Api::rerank},
      {"POST", "/rerank", &Api::rerank},
      {"POST", "/pooling", &Api::pooling},
  };
  return all;
}

Api::Api(Models models, const ApiOptions& options)
    : models_(std::move(models)), options_(options), worker_(static_cast<size_t>(options.max_waiting)) {
  check_usage(!models_.empty(), "[serve] there is no model, expected at least one");
  std::set<std::string> names;
  for (const auto& model : models_) {
    check_usage(!model->name().empty(), "[serve] the name of a model is empty, expected at least one character");
    check_usage(names.insert(model->name()).second, "[serve] two models are named {}, expected names that differ",
                model->name());
  }
}

void Api::close() {
  closed_ = true;
  for (const auto& model : models_) {
    if (model->generates()) model->engine().close();
  }
}

std::string_view Api::endpoint_of(std::string_view path) {
  const auto found =
      std::find_if(routes().begin(), routes().end(), [&](const Route& route) { return route.takes(path); });
  return found == routes().end() ? "other" : found->path;
}

namespace {

/// Compares in a time that does not depend on where the texts differ.
bool is_same(std::string_view a, std::string_view b) {
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b.empty() ? 0 : b[i % b.size()]);
  }
  return difference == 0;
}

}  // namespace

bool Api::is_authorized(const HttpRequest& request) const {
  constexpr std::string_view scheme = "Bearer ";
  const std::string_view given = request.authorization;
  return options_.api_key.empty() ||
         (given.starts_with(scheme) && is_same(given.substr(scheme.size()), options_.api_key));
}

void Api::handle(HttpRequest request, Responding responder) {
  answer(*responder, [&] {
    const Route* route = nullptr;
    std::string allowed;
    // A HEAD request is answered like GET. The network leaves out the body.
    const std::string_view method = request.method == "HEAD" ? "GET" : std::string_view(request.method);
    for (const Route& one : routes()) {
      if (!one.takes(request.path)) continue;
      const std::string_view name = one.method;
      allowed += fmt::format("{}{}", allowed.empty() ? "" : ", ", name == "GET" ? "GET, HEAD" : name);
      if (method == name) route = &one;
    }
    if (allowed.empty()) throw ApiError{404, fmt::format("there is no endpoint {}", request.path), "", "not_found"};
    if (request.method == "OPTIONS" && !options_.allow_origin.empty()) {  // a browser asks before a request
      return responder->reply({204,
                               "",
                               "text/plain",
                               {{"Access-Control-Allow-Methods", allowed},
                                {"Access-Control-Allow-Headers", "Authorization, *"},
                                {"Access-Control-Max-Age", "86400"}}});
    }
    if (route == nullptr) {
      Reply reply = ApiError{405, fmt::format("{} takes {}", request.path, allowed), "", "method_not_allowed"}.reply();
      reply.headers["Allow"] = allowed;
      return responder->reply(std::move(reply));
    }
    if (!route->is_open && !is_authorized(request)) {
      throw ApiError{401, "the API key is missing or wrong; send it as \"Authorization: Bearer KEY\"", "",
                     "invalid_api_key"};
    }
    if (std::string_view(route->method) == "GET") return (this->*route->run)(request, responder);
    if (closed_) throw ApiError{503, "the server is stopping", "", "stopping"};
    // Reading a body and encoding texts takes time, in which other connections must be served.
    const auto shared = std::make_shared<HttpRequest>(std::move(request));
    const bool is_posted = worker_.post([this, route, shared, responder] {
      answer(*responder, [&] {
        try {
          (this->*route->run)(*shared, responder);
        } catch (const EngineBusy&) {
          if (closed_) throw ApiError{503, "the server is stopping", "", "stopping"};
          throw;
        }
      });
    });
    if (!is_posted) throw ApiError{429, "too many requests are waiting; try again later", "", "queue_full"};
  });
}

const ServedModel& Api::model_of(const Fields& fields) const {
  const std::optional<std::string> name = fields.text("model");
  return name ? model_named(*name) : *models_.front();
}

const ServedModel& Api::model_named(const std::string& name) const {
  for (const auto& model : models_) {
    if (model->name() == name) return *model;
  }
  throw ApiError{404, fmt::format("there is no model {}; GET /v1/models lists them", name), "model", "model_not_found"};
}

std::vector<TextInput> Api::inputs_of(const Fields& fields, const char* key) const {
  std::vector<TextInput> inputs = fields.inputs(key);
  if (std::ssize(inputs) > options_.max_inputs) {
    throw ApiError{400, fmt::format("{} has {} texts, expected at most {}", key, inputs.size(), options_.max_inputs),
                   key};
  }
  return inputs;
}

}  // namespace alibi::serve
