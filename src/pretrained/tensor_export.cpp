// SPDX-License-Identifier: BSD-3-Clause
#include "src/pretrained/tensor_export.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "src/checkpoint/catalogue.hpp"
#include "src/checkpoint/numbers.hpp"
#include "src/huggingface/half.hpp"
#include "src/huggingface/slab.hpp"
#include "src/pretrained/adapters.hpp"
#include "src/pretrained/double_buffer.hpp"

namespace gyr {

namespace {

namespace fs = std::filesystem;
using safetensors::Type;

Type type_of(DType dtype, const std::string& name) {
  switch (dtype) {
    case DType::bf16: return Type::bf16;
    case DType::f32: return Type::f32;
    case DType::f64: return Type::f64;
    default: fail(Exit::data, "{}: has type {}; weights have floating-point types", name, name_of(dtype));
  }
}

template <class S, class F>
std::string converted(const TensorReader& from, const std::byte* block, Index count, F&& f) {
  std::vector<S> values(count, S(0.f));
  convert_values(from.dtype, block, count, values.data(), from.name);
  using To = decltype(f(values[0]));
  std::string out(values.size() * sizeof(To), '\0');
  for (std::size_t i = 0; i < values.size(); ++i) {
    const To x = f(values[i]);
    std::memcpy(out.data() + i * sizeof(To), &x, sizeof x);
  }
  return out;
}

std::string in_type(const TensorReader& from, const std::byte* block, Index count, Type type) {
  switch (type) {
    case Type::bf16: return converted<bf16>(from, block, count, [](bf16 x) { return x; });
    case Type::f16:
      return converted<float>(from, block, count, [&](float x) {
        const std::uint16_t half = float_to_half(x);
        require(!std::isfinite(x) || std::isfinite(half_to_float(half)), Exit::data,
                "{}: contains {}, beyond the maximum of half precision, 65504; choose bf16 or fp32", from.name, x);
        return half;
      });
    case Type::f64: return converted<double>(from, block, count, [](double x) { return x; });
    default: return converted<float>(from, block, count, [](float x) { return x; });
  }
}

void write_slab(const TensorExport& job, const Slab& slab, const std::byte* block, safetensors::Writer& writer) {
  if (job.as_stored) return writer.write(block, slab.bytes);
  const std::string bytes =
      job.blocks ? job.blocks->packed(job.from, job.to, job.part, slab.box, block) : in_type(job.from, block, elements(slab.box.count), job.to.type);
  writer.write(bytes.data(), Index(bytes.size()));
}

// Converts and writes on a separate thread, while this thread reads ahead from the checkpoint.
void write_tensors(const std::vector<const TensorExport*>& jobs, safetensors::Writer& writer, Transfer& transfer) {
  std::vector<std::pair<DType, Shape>> shapes;
  for (const TensorExport* job : jobs) shapes.emplace_back(job->from.dtype, job->from.shape);
  const std::vector<Slab> slabs = slabs_of(shapes);
  const auto read = [&](std::size_t i, std::span<std::byte> block) {
    const auto& [at, box, bytes] = slabs[i];
    jobs[at]->from.read(box, block.data(), box.count, full_box(box.count));
    transfer.add(jobs[at]->bytes() / jobs[at]->to.shape[0] * box.count[0]);
  };
  const auto write = [&](std::size_t i, std::span<std::byte> block) { write_slab(*jobs[slabs[i].tensor], slabs[i], block.data(), writer); };
  convey(slabs.size(), largest(slabs), Aside::draining, read, write);
}

}  // namespace

safetensors::Type stored_type(const CheckpointFile& file, const std::string& weight) {
  return file.meaning(weight) == half_meaning ? Type::f16 : type_of(file.open(Content::weight, weight).dtype, weight);
}

TensorExport tensor_export(const CheckpointFile& file, const LoraConfig& lora, const StoredNames& names, const std::string& name,
                           const std::string& first, std::optional<Type> wanted) {
  const std::vector<std::string>& weights = names.weights(names.place(first).name);
  const auto has_adapter = [&](const std::string& weight) { return lora && file.has(Content::weight, adapter_a_of(weight)); };
  const bool sums = std::any_of(weights.begin(), weights.end(), has_adapter);
  std::vector<StackedPart> parts;
  // For fp32 output and for merging adapters, the fp32 master weight is read if there is one.
  for (const std::string& weight : weights)
    parts.push_back({names.place(weight), wanted == Type::f32 || sums ? file.open(weight, DType::f32) : file.open(Content::weight, weight)});
  const bool half = file.meaning(first) == half_meaning;
  const Type type = wanted.value_or(stored_type(file, first));
  if (sums)
    for (std::size_t i = 0; i < weights.size(); ++i)
      parts[i].weight = has_adapter(weights[i]) ? merged(parts[i].weight, file.open(adapter_a_of(weights[i]), DType::f32),
                                                         file.open(adapter_b_of(weights[i]), DType::f32), lora.scale())
                                                : widened(parts[i].weight);
  const bool unstacked = parts.size() == 1 && !parts[0].place.transposed && parts[0].place.members == 0;
  TensorReader stored = unstacked ? parts[0].weight : stack_of(parts);
  const bool same = !half && type_of(stored.dtype, stored.name) == type;
  const Shape shape = stored.shape;
  return {std::move(stored), {name, type, shape}, same};
}

void write_shard(const fs::path& file, std::vector<const TensorExport*> jobs, Transfer& transfer) {
  std::vector<safetensors::Tensor> tensors;
  std::sort(jobs.begin(), jobs.end(), [](const TensorExport* a, const TensorExport* b) { return safetensors::precedes_in_file(a->to, b->to); });
  for (const TensorExport* job : jobs) tensors.push_back(job->to);
  safetensors::Writer writer(file, std::move(tensors));
  write_tensors(jobs, writer, transfer);
  writer.commit();
}

void write_text(const fs::path& file, const std::string& text) {
  OutputFile out(file);
  out.append(text);
  out.commit();
}

bool belongs_to_model_folder(const std::string& name) {
  const std::string ending = fs::path(name).extension().string();
  return ending == ".json" || ending == ".safetensors" || ending == ".jinja" || name == "merges.txt" || name == "tokenizer.model";
}

}  // namespace gyr
