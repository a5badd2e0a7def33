# SPDX-License-Identifier: BSD-3-Clause
# Training text that is the same on every machine: documents in which a word mostly determines the next one.
#   kind  text: documents separated by empty lines; chat: JSON lines of prompts and responses, a response repeats two words of the prompt
#   seed  random seed of the text   documents  number of documents
function draw(n) {  # random integer 0 .. n - 1; all intermediate values are below 2^53
  state = state * 16807 % 2147483647
  return int(state / 7) % n
}
function make_words(  i, n) {
  for (i = 0; i < 150; ++i) for (n = 1 + draw(3); n > 0; --n) word[i] = word[i] syllable[1 + draw(12)]
}
function sentence(length_,  at, text) {
  for (at = draw(150); length_ > 0; --length_) {
    text = text (text == "" ? "" : " ") word[at]
    at = (at * 7 + 1 + draw(2)) % 150
  }
  return text
}
function answer(prompt,  w, n) {
  n = split(prompt, w, " ")
  return w[n] " " w[1]
}
BEGIN {
  split("ka lo mi ren tu sha ven or ith dal pe qua", syllable, " ")
  state = 7
  make_words()
  state = seed
  for (; documents > 0; --documents)
    if (kind == "text") print sentence(70) ".\n"
    else { said = sentence(2 + draw(6)); printf "{\"prompt\": \"%s\", \"response\": \"%s\"}\n", said, answer(said) }
}
