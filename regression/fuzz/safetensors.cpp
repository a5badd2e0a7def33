// SPDX-License-Identifier: BSD-3-Clause
// Fuzz target for safetensors files. Any bytes are rejected with Exit::data, or give a header whose tensors cover the
// data exactly.
#include <cstdint>
#include <cstdlib>

#include "kernels/base/error.hpp"
#include "src/huggingface/safetensors_header.hpp"

namespace {

using namespace gyr;

template <class Parse>
void check(Index file_bytes, Parse&& parse) {
  try {
    const safetensors::Header header = parse();
    Index end = header.data_begin;
    for (const auto& tensor : header.tensors) {
      if (tensor.begin != end - header.data_begin || tensor.end - tensor.begin != elements(tensor.shape) * size_of(tensor.type)) std::abort();
      end += tensor.end - tensor.begin;
    }
    if (end != file_bytes) std::abort();
  } catch (const Error& error) {
    if (error.code != Exit::data || std::string_view(error.what()).size() > 1000) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  check(Index(size), [&] { return safetensors::read_header(bytes, "input"); });
  if (size < 2) return 0;
  // The input once more as the JSON of a header with a correct length. The first two bytes are the size of the data
  // area.
  const std::string_view json = bytes.substr(2);
  const Index file_bytes = safetensors::length_bytes + Index(json.size()) + (data[0] | data[1] << 8);
  check(file_bytes, [&] { return safetensors::parse_header(json, file_bytes, "input"); });
  return 0;
}
