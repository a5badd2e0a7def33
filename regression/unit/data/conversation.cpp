// SPDX-License-Identifier: BSD-3-Clause
#include "src/data/conversation.hpp"

#include <random>

#include "regression/support/testing.hpp"

namespace gyr::testing::conversation_suite {
namespace {

ConversationFormat format(std::string_view text) { return {ChatTemplate(text, Tokenizer(byte_vocabulary(std::vector<std::string>{"<|end|>"})))}; }

std::string text_of(const Conversation& c) {
  std::string text;
  for (const Utterance& p : c.utterances) text += p.special ? "#" : p.text;
  return text;
}

TEST(conversation, keys_have_user_defined_names) {
  ConversationFormat pair = format("{prompt}>{response}<|end|>");
  pair.prompt = "question", pair.response = "a b";
  EXPECT_EQ(text_of(read_conversation(R"({"a b": "yes", "prompt": 3, "question": "well?"})", pair)), "well?>yes#");
  ConversationFormat by_message = format("{role}>{content}<|end|>");
  by_message.messages = "conversations", by_message.role = "from", by_message.content = "value", by_message.assistant = "gpt";
  const Conversation c = read_conversation(R"({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]})", by_message);
  EXPECT_EQ(text_of(c), "human>a#gpt>b#");
  EXPECT_EQ(std::count_if(c.utterances.begin(), c.utterances.end(), [](const Utterance& p) { return p.learned; }), 2);
}

// A damaged line is either read completely or reported as a problem.
TEST(conversation, survives_damaged_lines) {
  const ConversationFormat formats[] = {format("{prompt}>{response}<|end|>"), format("{role}>{content}<|end|>")};
  const std::string lines[] = {R"({"prompt": "a\u00e9\n", "id": [1, {"x": null}], "response": "b"})",
                               R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})"};
  std::mt19937 random(3);
  const std::string bytes = "{}[]\",:\\u0dn1-e \n\xff\xc3<|";
  int full = 0, refused = 0;
  for (int trial = 0; trial < 20'000; ++trial) {
    std::string line = lines[trial % 2];
    for (unsigned n = 1 + random() % 3; n > 0; --n) {
      const std::size_t at = random() % line.size();
      const std::size_t kind = random() % 4;
      if (kind == 0) line[at] = bytes[random() % bytes.size()];
      else if (kind == 1) line.insert(at, 1, bytes[random() % bytes.size()]);
      else if (kind == 2 && line.size() > 1) line.erase(at, 1);
      else line.insert(at, line.substr(random() % line.size(), random() % 20));
    }
    const Conversation c = read_conversation(line, formats[trial % 2]);
    ASSERT_NE(c.problem.empty(), c.utterances.empty()) << line;
    (c.problem.empty() ? full : refused) += 1;
  }
  EXPECT_GT(full, 1000);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace gyr::testing::conversation_suite
