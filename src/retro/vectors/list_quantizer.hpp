// SPDX-License-Identifier: BSD-3-Clause
// Inverted-file quantizer of faiss (Johnson et al. 2019): divides the vectors into lists by the nearest of n centroids, and stores
// each one as a short code. A search compares a query with the codes of the `probes` lists whose centroids are nearest to it.
// Without faiss at configure time, list_quantizer_missing.cpp refuses by name.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gyr::retro {

using Codes = std::vector<std::uint8_t>;

class ListQuantizer {
 public:
  virtual ~ListQuantizer() = default;

  virtual std::int64_t width() const = 0;       // elements of a vector
  virtual std::int64_t lists() const = 0;       // number of centroids
  virtual std::int64_t code_bytes() const = 0;  // bytes of the code of a vector
  virtual Codes stored() const = 0;             // for read_quantizer, in the format of faiss

  // List and code (code_bytes) of each vector. `vectors` (vectors, width). Results do not depend on how vectors are grouped into calls.
  struct Encoded {
    std::vector<std::uint32_t> lists;
    Codes codes;
  };
  virtual Encoded encode(std::span<const float> vectors) const = 0;

  // For each of the `probes` lists nearest to `query` (width): calls codes_of(list), computes squared distances to these codes and calls
  // found(list, distances).
  using CodesOfList = std::function<std::span<const std::uint8_t>(std::uint32_t list)>;
  using FoundDistances = std::function<void(std::uint32_t list, std::span<const float> distances)>;
  virtual void probe(std::span<const float> query, std::int64_t probes, const CodesOfList& codes_of, const FoundDistances& found) const = 0;
};

// Version of faiss that this build has; empty: none.
std::string faiss_version();
// Exit::config, naming the package, if the build has no faiss.
void require_faiss();

// Vectors that training needs at least, and the number of lists. Exit::config for a string that the factory of faiss refuses, or that makes no
// inverted file with one code per vector.
struct QuantizerSize {
  std::int64_t lists = 0, least_sample = 0;
};
QuantizerSize size_of_quantizer(const std::string& factory, std::int64_t width);

// Trains with one thread. `sample` (vectors, width), at least least_sample of them. Equal arguments give equal bytes on one machine.
std::unique_ptr<ListQuantizer> train_quantizer(const std::string& factory, std::int64_t width, std::span<const float> sample, std::uint64_t seed);
// Exit::data if the bytes are no quantizer.
std::unique_ptr<ListQuantizer> read_quantizer(const Codes& stored);

}  // namespace gyr::retro
