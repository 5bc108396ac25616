// The server with its network: exceptions at every step, requests that are not HTTP, a log that nobody reads.
// tests/cli/serve_test.py runs the command.
#include "serve/network/server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <future>
#include <new>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "serve/network/log_writer.h"
#include "small_config.h"
#include "testing.h"

namespace alibi::serve::network {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// What the server calls at each step. Tests set these before a request.
std::atomic<int64_t> steps = 0, failing_step = -1;
std::atomic<bool> fails_to_post = false;

void throw_at_the_step(const char* name) {
  if (steps++ == failing_step) throw std::runtime_error(fmt::format("injected at the step {}", name));
  if (fails_to_post && std::string_view(name) == "post") throw std::bad_alloc();
}

/// A server on a thread of this process.
class RunningServer {
 public:
  /// `vocab_size`: rows of the model's table, of which 257 have a token.
  explicit RunningServer(const ServerOptions& options = small_options(), int vocab_size = 257) : options_(options) {
    steps = 0;
    failing_step = -1;
    before_step = throw_at_the_step;
    std::promise<std::string> url;
    thread_ = std::thread([this, &url, vocab_size] {
      run_server(models(vocab_size), options_, [&url](const std::string& text) { url.set_value(text); });
    });
    const std::string text = url.get_future().get();
    port_ = static_cast<uint16_t>(std::stoi(text.substr(text.rfind(':') + 1)));
    EXPECT_NE(send("GET /health HTTP/1.1\r\nConnection: close\r\n\r\n").find("200 OK"), std::string::npos);
  }
  ~RunningServer() {
    ::kill(::getpid(), SIGTERM);
    thread_.join();
    before_step = nullptr;
  }

  static ServerOptions small_options() {
    ServerOptions options;
    options.port = 0;
    options.request_seconds = options.header_seconds = options.body_seconds = 5;
    options.grace_seconds = 5;
    options.logs_requests = false;
    return options;
  }

  /// Sends the bytes, then nothing more, and returns what arrives until the server closes the connection.
  std::string send(std::string_view bytes) const {
    const int connection = connect();
    // The server may have answered and closed before it has received all.
    ::send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    std::string answer;
    char part[4096];
    ssize_t count = 0;
    while ((count = ::recv(connection, part, sizeof(part), 0)) > 0) answer.append(part, static_cast<size_t>(count));
    EXPECT_FALSE(count < 0 && errno == EAGAIN) << "no answer within the time limit to " << bytes.substr(0, 200);
    ::close(connection);
    return answer;
  }

  int connect() const {
    const int connection = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port_);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    const timeval limit{.tv_sec = 10, .tv_usec = 0};
    ::setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    return connection;
  }

  /// The value of a metric.
  double metric(const std::string& name) const {
    const std::string text = send("GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n");
    const size_t at = text.find("\n" + name);
    EXPECT_NE(at, std::string::npos) << text;
    return at == std::string::npos ? -1 : std::stod(text.substr(text.find(' ', at)));
  }

 private:
  static Api::Models models(int vocab_size) {
    const LanguageModelConfig config = with_vocab_size(test::small_config(1, 16, 2), vocab_size);
    ServedModelOptions options;
    options.chat_template = "plain";
    options.engine.max_tokens = 500;
    Api::Models models;
    models.push_back(
        std::make_unique<ServedModel>("m", LanguageModel(config, 1, std::make_shared<ByteTokenizer>()), options));
    return models;
  }

  const ServerOptions options_;
  uint16_t port_ = 0;
  std::thread thread_;
};

std::string post(const std::string& path, const std::string& body, const std::string& more = "") {
  return fmt::format("POST {} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n{}\r\n{}", path, body.size(), more,
                     body);
}

std::vector<std::string> all_requests() {
  const std::string chunked = "POST /tokenize HTTP/1.1\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
  std::vector<std::string> all;
  for (const char* path : {"/", "/health", "/v1/models", "/metrics", "/props", "/tokenizer_info", "/none"}) {
    all.push_back(fmt::format("GET {} HTTP/1.1\r\nConnection: close\r\n\r\n", path));
  }
  const std::vector<std::string> more = {
      "HEAD /health HTTP/1.1\r\nConnection: close\r\n\r\n",
      "DELETE /health HTTP/1.1\r\nConnection: close\r\n\r\n",
      post("/v1/completions", R"({"prompt": "a", "max_tokens": 3, "ignore_eos": true})"),
      post("/v1/completions", R"({"prompt": ["a", "bc"], "n": 2, "max_tokens": 3, "logprobs": 2, "echo": true})"),
      post("/v1/completions", R"({"prompt": "a", "max_tokens": 3, "stream": true, "logprobs": 1})"),
      post("/v1/completions", R"({"prompt": 5})"),
      post("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 3})"),
      post("/v1/chat/completions",
           R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 3, "stream": true,
               "stream_options": {"include_usage": true}})"),
      post("/v1/responses", R"({"input": "a", "instructions": "b", "max_output_tokens": 3, "top_logprobs": 1})"),
      post("/v1/responses", R"({"input": "a", "max_output_tokens": 3, "stream": true})"),
      post("/v1/embeddings", R"({"input": ["a", "b"]})"),
      post("/pooling", R"({"input": "abc"})"),
      post("/v1/rerank", R"({"query": "a", "documents": ["b"]})"),
      post("/tokenize", R"({"prompt": "abc", "with_pieces": true})"),
      post("/tokenize", R"({"prompt": "abc"})", "Expect: 100-continue\r\n"),
      post("/detokenize", R"({"tokens": [97]})"),
      post("/detokenize", "{"),
      chunked + "10\r\n{\"prompt\": \"ab\"}\r\n0\r\n\r\n",
      chunked + "10;name=value\r\n{\"prompt\": \"ab\"}\r\n0\r\nX: y\r\n\r\n",
      chunked + "1\r\n{\r\n0\r\nX: " + std::string(70'000, 'y') + "\r\n\r\n",
      "GET /health HTTP/1.1\r\nX: " + std::string(70'000, 'y') + "\r\n\r\n",
      "GET /health HTTP/1.0\r\n\r\n",
      "HELLO\r\n\r\n",
      "GET /health HTTP/1.1\r\n\r\nGET /health HTTP/1.1\r\nConnection: close\r\n\r\n",
  };
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

/// The number of answers, without interim ones.
int64_t answers_in(std::string_view text) {
  int64_t count = 0;
  for (size_t at = text.find("HTTP/1.1 "); at != std::string_view::npos; at = text.find("HTTP/1.1 ", at + 1)) {
    if (!text.substr(at).starts_with("HTTP/1.1 100")) ++count;
  }
  return count;
}

int64_t open_files() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
}

TEST(Server, AnswersOrClosesWhenAnyStepThrows) {
  const RunningServer server;
  const int64_t files = open_files();
  int64_t injected = 0, answered = 0, closed = 0;
  double slowest = 0;
  for (const std::string& request : all_requests()) {
    const std::string shown = request.substr(0, 150);
    const int64_t expected = answers_in(server.send(request));
    bool was_reached = true;
    for (int64_t step = 0; was_reached; ++step) {
      steps = 0;
      failing_step = step;
      const auto start = Clock::now();
      const std::string answer = server.send(request);
      slowest = std::max(slowest, seconds_since(start));
      was_reached = steps > step;
      failing_step = -1;
      EXPECT_LE(answers_in(answer), expected) << step << " of " << shown << answer;
      injected += was_reached ? 1 : 0;
      (answer.empty() ? closed : answered) += was_reached ? 1 : 0;
    }
  }
  EXPECT_GT(injected, 300);
  EXPECT_GT(answered, closed);
  EXPECT_LT(slowest, 4);  // not at the end of the time for a request
  fmt::print("{} exceptions: {} requests were answered, {} connections closed without an answer, {:.3f} s at most\n",
             injected, answered, closed, slowest);
  // Nothing is left of them.
  const auto start = Clock::now();
  while (server.metric("alibi_running") > 0 && seconds_since(start) < 5) std::this_thread::yield();
  EXPECT_EQ(server.metric("alibi_running"), 0);
  EXPECT_EQ(server.metric("alibi_waiting"), 0);
  EXPECT_LE(open_files(), files + 1);
}

/// Requests of every shape, with ids that have no token in prompts, in lists and among the drawn ones.
std::vector<std::string> requests_for_more_ids_than_tokens() {
  std::vector<std::string> all;
  for (const char* prompt : {R"("the cat")", "[116, 260, 104]", "[256, 271]", R"(["a", [258, 98, 271]])"}) {
    for (const char* lists : {"", R"(, "logprobs": 0)", R"(, "logprobs": 40)", R"(, "logprobs": 272)",
                              R"(, "logprobs": 1, "echo": true)"}) {
      for (const char* sampling :
           {R"("max_tokens": 3, "temperature": 0)", R"("max_tokens": 7, "temperature": 50, "n": 2)",
            R"("max_tokens": 0)", R"("max_tokens": 5, "temperature": 50, "ignore_eos": true, "stop": ["e", "th"])",
            R"("max_tokens": 4, "temperature": 50, "repetition_penalty": 1.5, "top_k": 270)"}) {
        for (const char* stream : {"false", "true"}) {
          all.push_back(post("/v1/completions", fmt::format(R"({{"prompt": {}, "seed": {}, "stream": {}, {}{}}})",
                                                            prompt, all.size(), stream, sampling, lists)));
        }
      }
    }
  }
  return all;
}

TEST(Server, AnswersEveryShapeOfRequestOnceAlsoWhenAStepThrows) {
  const RunningServer server(RunningServer::small_options(), 272);
  int64_t whole = 0, failed = 0, closed = 0;
  double slowest = 0;
  const std::vector<std::string> requests = requests_for_more_ids_than_tokens();
  ASSERT_EQ(requests.size(), 200u);
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto ask = [&](int64_t failing) {
      steps = 0;
      failing_step = failing;
      const auto start = Clock::now();
      const std::string answer = server.send(requests[i]);
      slowest = std::max(slowest, seconds_since(start));
      failing_step = -1;
      return answer;
    };
    const std::string answer = ask(-1);
    const int64_t count = steps;
    EXPECT_EQ(answers_in(answer), 1) << requests[i];
    const bool is_refused = answer.find("together with echo") != std::string::npos;
    EXPECT_NE(answer.find(is_refused ? "HTTP/1.1 400" : "HTTP/1.1 200"), std::string::npos) << requests[i] << answer;
    const bool streams = answer.find("event-stream") != std::string::npos;
    EXPECT_EQ(answer.find("[DONE]") != std::string::npos, streams);
    EXPECT_EQ(answer.find("[DONE]"), answer.rfind("[DONE]"));
    EXPECT_EQ(answer.find("\"error\"") != std::string::npos, is_refused);
    whole += is_refused ? 0 : 1;
    for (const int64_t failing : {static_cast<int64_t>(i * 7) % count, static_cast<int64_t>(i * 13) % count}) {
      const std::string broken = ask(failing);
      EXPECT_LE(answers_in(broken), 1) << failing << " of " << requests[i] << broken;
      // A stream that has begun ends with [DONE], with an error, or with its connection: never with two of them.
      const bool is_done = broken.find("[DONE]") != std::string::npos;
      const bool is_error = broken.find("\"error\"") != std::string::npos;
      EXPECT_FALSE(streams && is_done && is_error) << failing << " of " << requests[i] << broken;
      failed += is_error ? 1 : 0;
      closed += broken.empty() ? 1 : 0;
    }
  }
  EXPECT_EQ(whole, 180);
  EXPECT_GT(failed, closed);
  EXPECT_LT(slowest, 4);  // a busy machine; not at the end of the time for a request
  fmt::print("{} whole answers, {} errors, {} connections closed without an answer, {:.3f} s at most\n", whole, failed,
             closed, slowest);
}

TEST(Server, AnswersWhenAnAnswerCannotBePosted) {
  const RunningServer server;
  for (const std::string& request : all_requests()) {
    fails_to_post = true;
    const std::string answer = server.send(request);
    fails_to_post = false;
    EXPECT_FALSE(answer.empty()) << request.substr(0, 150);
    EXPECT_EQ(answer.find("HTTP/1.1 200"), std::string::npos) << answer;
  }
}

TEST(Server, StopsAlthoughAStepOfTheStopThrows) {
  const auto start = Clock::now();
  {
    const RunningServer server;
    steps = 0;
    failing_step = 0;
  }
  EXPECT_EQ(steps, 2);  // "stop" twice
  EXPECT_LT(seconds_since(start), 5);
}

TEST(Server, SurvivesRequestsThatAreNotHttp) {
  constexpr int count = 10'000;
  const RunningServer server;
  const int64_t files = open_files();
  const std::vector<std::string> requests = all_requests();
  std::mt19937 random(1);
  const auto below = [&](size_t end) { return std::uniform_int_distribution<size_t>(0, end - 1)(random); };
  int answered = 0;
  for (int i = 0; i < count; ++i) {
    std::string request = requests[below(requests.size())];
    if (request.size() > 4096) request.resize(4096);
    for (size_t changes = 1 + below(4); changes > 0 && !request.empty(); --changes) {
      const size_t at = below(request.size());
      const std::string& other = requests[below(requests.size())];
      switch (below(7)) {
        case 0:
          request[at] = static_cast<char>(below(256));
          break;
        case 1:
          request.resize(at);
          break;
        case 2:
          request.erase(at, 1 + below(8));
          break;
        case 3:
          request.insert(at, std::string(1 + below(8), static_cast<char>(below(256))));
          break;
        case 4:
          request.insert(at, std::string(below(40'000), static_cast<char>(below(256))));
          break;
        case 5:
          request.insert(at, other.substr(below(std::min<size_t>(other.size(), 500)), below(200)));
          break;
        default:
          request.insert(at, request.substr(below(request.size()), below(100)));
      }
    }
    const int connection = server.connect();
    ::send(connection, request.data(), request.size(), MSG_NOSIGNAL);
    ::shutdown(connection, SHUT_WR);
    char part[4096];
    ssize_t read = 0, sum = 0;
    while ((read = ::recv(connection, part, sizeof(part), 0)) > 0) sum += read;
    EXPECT_FALSE(read < 0 && errno == EAGAIN) << "no answer within the time limit to " << request.substr(0, 500);
    answered += sum > 0 ? 1 : 0;
    ::close(connection);
  }
  EXPECT_GT(answered, count / 2);
  EXPECT_LE(open_files(), files + 1);
  EXPECT_EQ(server.metric("alibi_running"), 0);
}

TEST(LogWriter, DropsLinesThatNobodyReads) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const auto start = Clock::now();
  {
    LogWriter writer(ends[1]);
    for (int i = 0; i < 50'000; ++i) writer.add(std::string(99, 'x'));
    EXPECT_LT(seconds_since(start), 5);
  }
  EXPECT_LT(seconds_since(start), 8);  // the thread may wait for the reader for ever
  // Every line was written or counted.
  FILE* const file = ::fdopen(ends[0], "r");
  int64_t written = 0, dropped = 0;
  char line[200];
  while (written + dropped < 50'000 && std::fgets(line, sizeof(line), file) != nullptr) {
    const std::string_view text = line;
    if (text.starts_with("{\"event\":\"log lines were dropped\"")) {
      dropped += std::stoll(std::string(text.substr(text.rfind(':') + 1)));
    } else {
      EXPECT_EQ(text.size(), 100u);
      ++written;
    }
  }
  EXPECT_EQ(written + dropped, 50'000);
  EXPECT_GT(dropped, 10'000);
  std::fclose(file);
  ::close(ends[1]);
}

TEST(LogWriter, WritesTheRestAtItsEnd) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  {
    LogWriter writer(ends[1]);
    for (int i = 0; i < 100; ++i) writer.add(fmt::format("line {}", i));
  }
  ::close(ends[1]);
  std::string text(10'000, ' ');
  text.resize(static_cast<size_t>(::read(ends[0], text.data(), text.size())));
  EXPECT_TRUE(text.starts_with("line 0\nline 1\n"));
  EXPECT_TRUE(text.ends_with("line 99\n"));
  ::close(ends[0]);
}

}  // namespace
}  // namespace alibi::serve::network
