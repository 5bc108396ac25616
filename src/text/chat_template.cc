#include "text/chat_template.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"

namespace alibi::text {
namespace {

constexpr std::string_view kVicunaSystem =
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, "
    "and "
    "polite answers to the user's questions.";
constexpr std::string_view kInstructSystem =
    "Below is an instruction that describes a task. Write a response that appropriately completes the request.";

constexpr std::array<ChatTemplate, 8> kTemplates{{
    {.name = "chatml",
     .family = "MPT-7B-Chat, MPT-30B-Chat",
     .system_begin = "<|im_start|>system\n",
     .system_end = "<|im_end|>\n",
     .user_begin = "<|im_start|>user\n",
     .user_end = "<|im_end|>\n",
     .assistant_begin = "<|im_start|>assistant\n",
     .assistant_end = "<|im_end|>\n",
     .stop = "<|im_end|>"},
    {.name = "llama2",
     .family = "Llama 2 Chat and models trained with its format",
     .system_begin = "<<SYS>>\n",
     .system_end = "\n<</SYS>>\n\n",
     .user_begin = "[INST] ",
     .user_end = " [/INST]",
     .assistant_space = " ",
     .assistant_end = " </s><s>",
     .stop = "[INST]",
     .system_in_user = true},
    {.name = "dolly",
     .family = "MPT-7B-Instruct, Dolly",
     .system_end = "\n\n",
     .user_begin = "### Instruction:\n",
     .user_end = "\n\n",
     .assistant_begin = "### Response:\n",
     .assistant_end = "\n\n",
     .default_system = kInstructSystem,
     .stop = "### Instruction:"},
    {.name = "alpaca",
     .family = "Alpaca and models trained with its format",
     .system_end = "\n\n",
     .user_begin = "### Instruction:\n",
     .user_end = "\n\n",
     .assistant_begin = "### Response:",
     .assistant_end = "\n\n",
     .default_system = kInstructSystem,
     .stop = "### Instruction:"},
    {.name = "vicuna",
     .family = "Vicuna 1.1 and later",
     .system_end = " ",
     .user_begin = "USER: ",
     .user_end = " ",
     .assistant_begin = "ASSISTANT:",
     .assistant_space = " ",
     .assistant_end = "</s>",
     .default_system = kVicunaSystem,
     .stop = "USER:"},
    {.name = "baichuan",
     .family = "Baichuan-13B-Chat",
     .user_begin = "<reserved_102>",
     .assistant_begin = "<reserved_103>",
     .assistant_end = "</s>",
     .stop = "<reserved_102>"},
    {.name = "baichuan2",
     .family = "Baichuan2-13B-Chat",
     .user_begin = "<reserved_106>",
     .assistant_begin = "<reserved_107>",
     .assistant_end = "</s>",
     .stop = "<reserved_106>"},
    {.name = "plain",
     .family = "models that were trained with no template",
     .system_end = "\n\n",
     .user_begin = "User: ",
     .user_end = "\n",
     .assistant_begin = "Assistant:",
     .assistant_space = " ",
     .assistant_end = "\n",
     .stop = "\nUser:"},
}};

}  // namespace

std::span<const ChatTemplate> chat_templates() { return kTemplates; }

const ChatTemplate& chat_template(std::string_view name) {
  const auto* const found =
      std::find_if(kTemplates.begin(), kTemplates.end(), [&](const ChatTemplate& chat) { return chat.name == name; });
  if (found != kTemplates.end()) return *found;
  std::vector<std::string_view> names;
  for (const ChatTemplate& chat : kTemplates) names.push_back(chat.name);
  fail_usage("[chat] there is no template '{}', expected {}", name, fmt::join(names, ", "));
}

std::string_view chat_template_like(std::string_view jinja) {
  // Templates may write a string in parts, such as '<|im_start|>' + role, so each sign is one short string.
  constexpr std::pair<std::string_view, std::string_view> signs[] = {
      {"<|im_start|>", "chatml"},      {"[INST]", "llama2"},         {"<reserved_102>", "baichuan"},
      {"<reserved_106>", "baichuan2"}, {"### Instruction", "dolly"}, {"USER:", "vicuna"}};
  for (const auto& [sign, name] : signs) {
    if (jinja.find(sign) != std::string_view::npos) return name;
  }
  return "plain";
}

std::string chat_prompt(const ChatTemplate& chat, std::span<const ChatMessage> messages) {
  check_usage(!messages.empty(), "[chat] there are no messages, expected at least one");
  const bool has_system = messages[0].role == "system" || messages[0].role == "developer";
  const std::string_view system = has_system ? std::string_view(messages[0].content) : chat.default_system;
  std::string opening;  // until it is written
  if (!system.empty()) opening = fmt::format("{}{}{}", chat.system_begin, system, chat.system_end);
  std::string prompt;
  if (!chat.system_in_user) prompt = std::exchange(opening, {});
  const auto user = [&](std::string_view content) {
    prompt += fmt::format("{}{}{}{}", chat.user_begin, std::exchange(opening, {}), content, chat.user_end);
  };
  for (size_t i = has_system ? 1 : 0; i < messages.size(); ++i) {
    const auto& [role, content] = messages[i];
    check_usage(role != "system" && role != "developer",
                "[chat] message {} has the role {}, expected user or assistant; a system message must be the first", i,
                role);
    check_usage(role == "user" || role == "assistant",
                "[chat] message {} has the role '{}', expected system, developer, user or assistant", i, role);
    if (role == "user") {
      user(content);
      continue;
    }
    if (!opening.empty()) user("");
    prompt += fmt::format("{}{}{}", chat.assistant_begin, chat.assistant_space, content);
    if (i + 1 == messages.size()) return prompt;  // the reply continues it
    prompt += chat.assistant_end;
  }
  if (!opening.empty()) user("");
  return prompt + std::string(chat.assistant_begin);
}

}  // namespace alibi::text
