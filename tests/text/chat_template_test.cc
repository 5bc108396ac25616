#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "alibi/error.h"

namespace alibi::text {
namespace {

const std::vector<ChatMessage> kConversation = {
    {"system", "Be short."}, {"user", "Hi"}, {"assistant", "Hello."}, {"user", "2+2?"}};

// The prompts that the templates of these models give in Hugging Face's transformers, without the BOS token, which the
// tokenizer adds.
TEST(ChatTemplate, PromptsOfTheFamilies) {
  const std::map<std::string, std::string> expected = {
      {"chatml",
       "<|im_start|>system\nBe "
       "short.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello.<|im_end|>\n"
       "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n"},
      {"llama2", "[INST] <<SYS>>\nBe short.\n<</SYS>>\n\nHi [/INST] Hello. </s><s>[INST] 2+2? [/INST]"},
      {"dolly",
       "Be short.\n\n### Instruction:\nHi\n\n### Response:\nHello.\n\n### Instruction:\n2+2?\n\n### Response:\n"},
      {"alpaca", "Be short.\n\n### Instruction:\nHi\n\n### Response:Hello.\n\n### Instruction:\n2+2?\n\n### Response:"},
      {"vicuna", "Be short. USER: Hi ASSISTANT: Hello.</s>USER: 2+2? ASSISTANT:"},
      {"baichuan", "Be short.<reserved_102>Hi<reserved_103>Hello.</s><reserved_102>2+2?<reserved_103>"},
      {"baichuan2", "Be short.<reserved_106>Hi<reserved_107>Hello.</s><reserved_106>2+2?<reserved_107>"},
      {"plain", "Be short.\n\nUser: Hi\nAssistant: Hello.\nUser: 2+2?\nAssistant:"},
  };
  std::set<std::string> names;
  for (const ChatTemplate& chat : chat_templates()) {
    const std::string name(chat.name);
    ASSERT_TRUE(names.insert(name).second) << name;
    ASSERT_TRUE(expected.contains(name)) << name;
    EXPECT_EQ(chat_prompt(chat, kConversation), expected.at(name)) << name;
    EXPECT_EQ(&chat_template(name), &chat);
    EXPECT_FALSE(chat.stop.empty()) << name;
  }
  EXPECT_EQ(names.size(), expected.size());
}

TEST(ChatTemplate, TheDefaultSystemMessageIsUsedOnlyWithoutOne) {
  const std::vector<ChatMessage> user = {{"user", "Hi"}};
  EXPECT_EQ(chat_prompt(chat_template("dolly"), user),
            "Below is an instruction that describes a task. Write a response that appropriately completes the request."
            "\n\n### Instruction:\nHi\n\n### Response:\n");
  EXPECT_EQ(chat_prompt(chat_template("llama2"), user), "[INST] Hi [/INST]");
  const std::vector<ChatMessage> empty_system = {{"system", ""}, {"user", "Hi"}};
  EXPECT_EQ(chat_prompt(chat_template("vicuna"), empty_system), "USER: Hi ASSISTANT:");
  const std::vector<ChatMessage> developer = {{"developer", "Be short."}, {"user", "Hi"}};
  EXPECT_EQ(chat_prompt(chat_template("vicuna"), developer), "Be short. USER: Hi ASSISTANT:");
}

TEST(ChatTemplate, AReplyOfTheAssistantIsContinued) {
  const std::vector<ChatMessage> messages = {{"user", "Hi"}, {"assistant", "Yes"}};
  EXPECT_EQ(chat_prompt(chat_template("chatml"), messages),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYes");
}

TEST(ChatTemplate, ASystemMessageIsNeverLost) {
  for (const ChatTemplate& chat : chat_templates()) {
    for (const std::vector<ChatMessage>& messages :
         {std::vector<ChatMessage>{{"system", "Rule."}},
          std::vector<ChatMessage>{{"system", "Rule."}, {"assistant", "Yes."}},
          std::vector<ChatMessage>{{"system", "Rule."}, {"assistant", "Yes."}, {"user", "No."}}}) {
      const std::string prompt = chat_prompt(chat, messages);
      const size_t at = prompt.find("Rule.");
      EXPECT_NE(at, std::string::npos) << chat.name;
      EXPECT_EQ(prompt.find("Rule.", at + 1), std::string::npos) << chat.name;
    }
  }
}

TEST(ChatTemplate, RefusesWhatIsNoConversation) {
  const auto message_of = [](const std::vector<ChatMessage>& messages) -> std::string {
    try {
      chat_prompt(chat_template("plain"), messages);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(message_of({}).find("no messages"), std::string::npos);
  EXPECT_NE(message_of({{"tool", "x"}}).find("'tool'"), std::string::npos);
  EXPECT_NE(message_of({{"user", "x"}, {"system", "y"}}).find("message 1 has the role system"), std::string::npos);
  try {
    chat_template("jinja");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string_view(error.what()).find("'jinja', expected chatml, llama2"), std::string_view::npos);
  }
}

TEST(ChatTemplate, IsFoundByAFilesTemplate) {
  EXPECT_EQ(chat_template_like("{{'<|im_start|>' + message['role'] + '\\n' + message['content']}}"), "chatml");
  EXPECT_EQ(chat_template_like("{{ bos_token + '[INST] ' + content + ' [/INST]' }}"), "llama2");
  EXPECT_EQ(chat_template_like("{{ '<reserved_106>' + message['content'] }}"), "baichuan2");
  EXPECT_EQ(chat_template_like("{{ 'USER: ' + message['content'] }}"), "vicuna");
  EXPECT_EQ(chat_template_like(""), "plain");
  for (const ChatTemplate& chat : chat_templates()) {
    if (chat.name == "plain") continue;
    EXPECT_NE(chat_template_like(chat_prompt(chat, kConversation)), "plain") << chat.name;
  }
}

}  // namespace
}  // namespace alibi::text
