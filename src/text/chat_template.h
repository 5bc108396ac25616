// Chat templates: the text that a model of a family continues with the next reply of a conversation.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace alibi::text {

struct ChatMessage {
  std::string role;  ///< "system" (or "developer", the same), "user" or "assistant"
  std::string content;
};

/// Strings around the messages of each role. A template of Hugging Face is a program (Jinja), which is not run here.
struct ChatTemplate {
  std::string_view name;
  std::string_view family;  ///< models that were trained with it
  std::string_view system_begin = {}, system_end = {};
  std::string_view user_begin = {}, user_end = {};
  std::string_view assistant_begin = {};  ///< also ends the prompt for the next reply
  std::string_view assistant_space = {};  ///< between assistant_begin and an earlier reply; the model writes its own
  std::string_view assistant_end = {};
  std::string_view default_system = {};  ///< used if the conversation has no system message
  std::string_view stop = {};            ///< a reply ends before it, if no end-of-text token did so
  bool system_in_user = false;           ///< the system message is the beginning of the first user message
};

/// chatml, llama2, dolly, alpaca, vicuna, baichuan, baichuan2 and plain.
std::span<const ChatTemplate> chat_templates();

/// Throws UsageError with the valid names.
const ChatTemplate& chat_template(std::string_view name);

/// The name of the template that a chat_template of tokenizer_config.json (or tokenizer.chat_template of a GGUF file)
/// stands for, found by the strings that it has in it; "plain" if none is found.
std::string_view chat_template_like(std::string_view jinja);

/// The prompt for the reply after the last message. Special tokens such as <|im_start|> are spelled out, as the
/// template's own text: encode with EncodeOptions::parse_special, or encode_prompt(). If the last message is of the
/// assistant, the reply continues it. Throws UsageError for an unknown role, a system message that is not the first, or
/// if there are no messages.
std::string chat_prompt(const ChatTemplate& chat, std::span<const ChatMessage> messages);

}  // namespace alibi::text
