// SPDX-License-Identifier: BSD-3-Clause
// YAML files that come with the program: decks in input/ and cluster descriptions in input/clusters/.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace gyr {

// Suggestion for a file that does not exist, "did you mean input/demo.yaml?": the same path with .yaml, or a file in
// `folder` (input or input/clusters) with this or a similar name. Empty if there is none. The folder is searched in the
// working folder, and in the clone or installation of the program.
std::string similar_bundled_file(const std::string& file, const std::string& folder);
// Names without .yaml of the files in `folder`, sorted.
std::vector<std::string> bundled_names(const std::string& folder);

}  // namespace gyr
