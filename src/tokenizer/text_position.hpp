// SPDX-License-Identifier: BSD-3-Clause
// Position of a text that is encoded on its own. It decides which prefixes (a space or a mark) are inserted.
#pragma once

namespace gyr {

enum class TextPosition {
  begin,        // the text is the start of a document
  after_token,  // a special token precedes it
  after_text,   // it continues other text, so no prefix is inserted
};

}  // namespace gyr
