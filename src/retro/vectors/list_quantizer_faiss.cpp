// SPDX-License-Identifier: BSD-3-Clause
// faiss chooses between loops and a BLAS library by the number of vectors of a call, and their last bits differ. Vectors are therefore encoded
// and searched one by one, so that results depend neither on blocks nor on ranks.
#include <faiss/Index.h>
#include <faiss/IndexIVFFlat.h>
#include <faiss/IndexIVFPQ.h>
#include <faiss/IndexIVFPQR.h>
#include <faiss/IndexPreTransform.h>
#include <faiss/IndexScalarQuantizer.h>
#include <faiss/VectorTransform.h>
#include <faiss/impl/FaissException.h>
#include <faiss/impl/io.h>
#include <faiss/index_factory.h>
#include <faiss/index_io.h>

#include <typeinfo>

#include "kernels/base/error.hpp"
#include "kernels/base/printable.hpp"
#include "src/retro/vectors/list_quantizer.hpp"

extern "C" void omp_set_num_threads(int);
extern "C" int omp_get_max_threads();
extern "C" __attribute__((weak)) void openblas_set_num_threads(int);
extern "C" __attribute__((weak)) int openblas_get_num_threads();

namespace gyr::retro {

namespace {

// Limits faiss and its BLAS library to one thread during the lifetime of the object. The order of a sum depends on the number of threads.
class OneThread {
 public:
  OneThread() : threads_(omp_get_max_threads()), blas_threads_(openblas_get_num_threads ? openblas_get_num_threads() : 1) { set(1, 1); }
  ~OneThread() { set(threads_, blas_threads_); }
  OneThread(const OneThread&) = delete;

 private:
  static void set(int threads, int blas_threads) {
    omp_set_num_threads(threads);
    if (openblas_set_num_threads) openblas_set_num_threads(blas_threads);
  }
  int threads_, blas_threads_;
};

// First sentence of an exception of faiss, without the place in its source.
std::string reason_of(const std::exception& e) {
  std::string text = e.what();
  if (const std::size_t at = text.find(": "); text.starts_with("Error in ") && at != std::string::npos) text.erase(0, at + 2);
  return printable_line(text.substr(0, 300));
}

// The inverted file of an index, or null if it stores vectors in another way than as one code each.
faiss::IndexIVF* lists_of(faiss::Index& index) {
  auto* const transformed = dynamic_cast<faiss::IndexPreTransform*>(&index);
  auto* const ivf = dynamic_cast<faiss::IndexIVF*>(transformed ? transformed->index : &index);
  if (!ivf || ivf->metric_type != faiss::METRIC_L2) return nullptr;
  const faiss::IndexIVF& type = *ivf;
  const bool plain = typeid(type) == typeid(faiss::IndexIVFFlat) || typeid(type) == typeid(faiss::IndexIVFPQ) ||
                     typeid(type) == typeid(faiss::IndexIVFScalarQuantizer);
  return plain ? ivf : nullptr;
}

std::unique_ptr<faiss::Index> made(const std::string& factory, std::int64_t width) {
  const char* const valid = "give the name of an inverted file, such as IVF1024,Flat or OPQ16_64,IVF4096,PQ16 (github.com/facebookresearch/faiss)";
  std::unique_ptr<faiss::Index> index;
  try {
    index.reset(faiss::index_factory(int(width), factory.c_str(), faiss::METRIC_L2));
  } catch (const std::exception& refused) {
    fail(Exit::config, "--index {}: faiss refuses it for vectors of {} elements: {}; {}", printable_line(factory), width, reason_of(refused), valid);
  }
  require(lists_of(*index) != nullptr, Exit::config, "--index {}: is no inverted file whose vectors have one code each; {}", printable_line(factory),
          valid);
  return index;
}

class FaissQuantizer final : public ListQuantizer {
 public:
  explicit FaissQuantizer(std::unique_ptr<faiss::Index> index) : index_(std::move(index)), ivf_(lists_of(*index_)) {}

  std::int64_t width() const override { return index_->d; }
  std::int64_t lists() const override { return std::int64_t(ivf_->nlist); }
  std::int64_t code_bytes() const override { return std::int64_t(ivf_->code_size); }
  Codes stored() const override {
    faiss::VectorIOWriter writer;
    faiss::write_index(index_.get(), &writer);
    return std::move(writer.data);
  }
  Encoded encode(std::span<const float> vectors) const override;
  void probe(std::span<const float> query, std::int64_t probes, const CodesOfList& codes_of, const FoundDistances& found) const override;

 private:
  // Calls use(x) with the vector as the inverted file stores it, for example rotated by OPQ.
  template <class Use>
  void transformed(const float* vector, const Use& use) const {
    const auto* const chain = dynamic_cast<const faiss::IndexPreTransform*>(index_.get());
    const float* const x = chain ? chain->apply_chain(1, vector) : vector;
    const std::unique_ptr<const float[]> owned(x == vector ? nullptr : x);
    use(x);
  }
  std::unique_ptr<faiss::Index> index_;
  faiss::IndexIVF* ivf_;
};

ListQuantizer::Encoded FaissQuantizer::encode(std::span<const float> vectors) const {
  const OneThread one;
  Encoded e;
  const std::size_t count = vectors.size() / std::size_t(width());
  e.codes.resize(count * ivf_->code_size);
  for (std::size_t i = 0; i < count; ++i)
    transformed(vectors.data() + i * std::size_t(width()), [&](const float* x) {
      faiss::Index::idx_t list = -1;
      ivf_->quantizer->assign(1, x, &list);
      require(list >= 0, Exit::numeric, "vector {} has no nearest centroid, because a distance is not finite; choose another encoder", i);
      e.lists.push_back(std::uint32_t(list));
      ivf_->encode_vectors(1, x, &list, e.codes.data() + i * ivf_->code_size);
    });
  return e;
}

void FaissQuantizer::probe(std::span<const float> query, std::int64_t probes, const CodesOfList& codes_of, const FoundDistances& found) const {
  const OneThread one;
  probes = std::min(probes, lists());
  std::vector<float> coarse(static_cast<std::size_t>(probes)), distances;
  std::vector<faiss::Index::idx_t> nearest(coarse.size());
  transformed(query.data(), [&](const float* x) {
    ivf_->quantizer->search(1, x, probes, coarse.data(), nearest.data());
    const std::unique_ptr<faiss::InvertedListScanner> scanner(ivf_->get_InvertedListScanner());
    scanner->set_query(x);
    for (std::size_t p = 0; p < nearest.size(); ++p) {
      if (nearest[p] < 0) continue;  // a graph of centroids has found fewer
      const std::span<const std::uint8_t> codes = codes_of(std::uint32_t(nearest[p]));
      if (codes.empty()) continue;
      distances.resize(codes.size() / ivf_->code_size);
      scanner->set_list(nearest[p], coarse[p]);
      for (std::size_t i = 0; i < distances.size(); ++i) distances[i] = scanner->distance_to_code(codes.data() + i * ivf_->code_size);
      found(std::uint32_t(nearest[p]), distances);
    }
  });
}

}  // namespace

std::string faiss_version() { return fmt::format("{}.{}.{}", FAISS_VERSION_MAJOR, FAISS_VERSION_MINOR, FAISS_VERSION_PATCH); }

void require_faiss() {}

QuantizerSize size_of_quantizer(const std::string& factory, std::int64_t width) {
  const std::unique_ptr<faiss::Index> index = made(factory, width);
  const faiss::IndexIVF& ivf = *lists_of(*index);
  const auto* const pq = dynamic_cast<const faiss::IndexIVFPQ*>(&ivf);
  const std::int64_t lists = std::int64_t(ivf.nlist);
  return {lists, pq ? std::max(lists, std::int64_t(pq->pq.ksub)) : lists};
}

std::unique_ptr<ListQuantizer> train_quantizer(const std::string& factory, std::int64_t width, std::span<const float> sample, std::uint64_t seed) {
  const OneThread one;
  std::unique_ptr<faiss::Index> index = made(factory, width);
  faiss::IndexIVF& ivf = *lists_of(*index);
  // A sample above the least one is accepted; the limits below would print warnings only.
  ivf.cp.seed = int(seed), ivf.cp.min_points_per_centroid = 1;
  if (auto* const pq = dynamic_cast<faiss::IndexIVFPQ*>(&ivf)) pq->pq.cp.seed = int(seed), pq->pq.cp.min_points_per_centroid = 1;
  try {
    index->train(faiss::Index::idx_t(sample.size() / std::size_t(width)), sample.data());
  } catch (const std::exception& refused) {
    fail(Exit::config, "--index {}: faiss cannot be trained with {} vectors: {}; give a smaller index", printable_line(factory),
         sample.size() / std::size_t(width), reason_of(refused));
  }
  return std::make_unique<FaissQuantizer>(std::move(index));
}

std::unique_ptr<ListQuantizer> read_quantizer(const Codes& stored) {
  const OneThread one;
  faiss::VectorIOReader reader;
  reader.data = stored;
  std::unique_ptr<faiss::Index> index;
  try {
    index.reset(faiss::read_index(&reader));
  } catch (const std::exception& refused) {
    fail(Exit::data, "faiss cannot read it: {}", reason_of(refused));
  }
  require(lists_of(*index) != nullptr && index->is_trained, Exit::data, "is no trained inverted file of faiss");
  return std::make_unique<FaissQuantizer>(std::move(index));
}

}  // namespace gyr::retro
