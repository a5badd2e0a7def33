// SPDX-License-Identifier: BSD-3-Clause
#include "src/hdf5/file.hpp"

#include <hdf5.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "src/hdf5/access.hpp"
#include "src/hdf5/chunks.hpp"
#include "src/hdf5/driver.hpp"

namespace gyr::hdf5 {

static_assert(std::is_same_v<hid_t, Handle::Id> && std::is_same_v<herr_t, int>);

// HDF5's state is global to the process, so its lock is, too.
std::recursive_mutex& LibraryLock::library() {
  static std::recursive_mutex mutex;
  return mutex;
}

namespace {

constexpr Index chunk_bytes = Index(2) << 20;
constexpr std::size_t longest_text = std::size_t(64) << 20;

// Sign 1 bit, exponent 8 bits with bias 127, mantissa 7 bits: readers without bfloat16 support still read the values.
Handle bfloat16() {
  Handle type(H5Tcopy(H5T_IEEE_F32LE), H5Tclose);
  H5Tset_fields(type, 15, 7, 8, 0, 7);
  H5Tset_precision(type, 16);
  H5Tset_size(type, 2);
  H5Tset_ebias(type, 127);
  return type;
}

Handle type_of(DType type) {
  switch (type) {
    case DType::f64: return {H5Tcopy(H5T_IEEE_F64LE), H5Tclose};
    case DType::f32: return {H5Tcopy(H5T_IEEE_F32LE), H5Tclose};
    case DType::bf16: return bfloat16();
    case DType::i32: return {H5Tcopy(H5T_STD_I32LE), H5Tclose};
    case DType::i64: return {H5Tcopy(H5T_STD_I64LE), H5Tclose};
    case DType::u8: return {H5Tcopy(H5T_STD_U8LE), H5Tclose};
  }
  return {};
}

std::vector<hsize_t> sizes(const Shape& shape) { return {shape.begin(), shape.end()}; }

Handle space_of(const Shape& shape) {
  const auto extents = sizes(shape);
  return {H5Screate_simple(int(extents.size()), extents.data(), nullptr), H5Sclose};
}

void select(const Handle& space, const Box& box, H5S_seloper_t how = H5S_SELECT_SET) {
  const auto first = sizes(box.first), count = sizes(box.count);
  H5Sselect_hyperslab(space, how, first.data(), nullptr, count.data(), nullptr);
}

Shape chunk_of(DType type, const Shape& shape) {
  Shape chunk = shape;
  for (std::size_t d = 0; d < chunk.size(); ++d) {
    const Index other_bytes = elements(chunk) / chunk[d] * size_of(type);
    if (other_bytes * chunk[d] <= chunk_bytes) break;
    const Index most = std::max<Index>(1, chunk_bytes / other_bytes), chunks = (shape[d] + most - 1) / most;
    chunk[d] = (shape[d] + chunks - 1) / chunks;  // chunks of equal size, because the last chunk takes as much space in the file as the others
  }
  return chunk;
}

}  // namespace

std::string library_version() {
  const LibraryLock lock;
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return fmt::format("{}.{}.{}", major, minor, release);
}

Index chunk_rows(DType type, const Shape& shape) { return chunk_of(type, shape).at(0); }

// ---- Attributes ----

bool Object::has(const char* attribute) const {
  const LibraryLock lock;
  return H5Aexists(object_, attribute) > 0;
}

Handle Object::attribute(const char* attribute) const {
  const LibraryLock lock;
  require(has(attribute), Exit::data, "{}: has no attribute '{}'", name_, attribute);
  return owned(H5Aopen(object_, attribute, H5P_DEFAULT), H5Aclose, name_);
}

void Object::set(const char* attribute, Handle::Id type, const void* value, const Shape& shape) {
  const LibraryLock lock;
  const Handle space = shape.empty() ? Handle(H5Screate(H5S_SCALAR), H5Sclose) : space_of(shape);
  const Handle made(H5Acreate2(object_, attribute, type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  if (made >= 0 && H5Awrite(made, type, value) >= 0) return;
  const std::string why = fmt::format("attribute '{}': {}", attribute, reason());
  fail_write(name_, cause(object_, why));
}

void Object::set(const char* attribute, const std::string& text) {
  const LibraryLock lock;
  const Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type, std::max<std::size_t>(1, text.size()));
  H5Tset_cset(type, H5T_CSET_UTF8);
  H5Tset_strpad(type, H5T_STR_NULLPAD);
  set(attribute, type, text.c_str());
}
void Object::set(const char* attribute, std::int64_t number) { set(attribute, H5T_STD_I64LE, &number); }
void Object::set(const char* attribute, std::uint64_t number) { set(attribute, H5T_STD_U64LE, &number); }
void Object::set(const char* attribute, const Shape& extents) { set(attribute, H5T_STD_I64LE, extents.data(), {Index(extents.size())}); }

std::string Object::text(const char* name) const {
  const LibraryLock lock;
  const Handle attribute = this->attribute(name);
  const Handle type = owned(H5Aget_type(attribute), H5Tclose, name_);
  const Handle space = owned(H5Aget_space(attribute), H5Sclose, name_);
  const bool is_text = H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0 && H5Sget_simple_extent_npoints(space) == 1;
  require(is_text && H5Tget_size(type) <= longest_text, Exit::data, "{}: attribute '{}' is not a string", name_, name);
  std::string text(H5Tget_size(type), '\0');
  require(H5Aread(attribute, type, text.data()) >= 0, Exit::data, "{}: attribute '{}': {}", name_, name, reason());
  text.erase(std::find(text.begin(), text.end(), '\0'), text.end());
  return text;
}

template <class I>
I Object::number(const char* name) const {
  const LibraryLock lock;
  const Handle attribute = this->attribute(name);
  const Handle type = owned(H5Aget_type(attribute), H5Tclose, name_);
  const Handle space = owned(H5Aget_space(attribute), H5Sclose, name_);
  require(H5Tget_class(type) == H5T_INTEGER && H5Sget_simple_extent_npoints(space) == 1, Exit::data, "{}: attribute '{}' is not a number", name_,
          name);
  I value = 0;
  const hid_t native = std::is_signed_v<I> ? H5T_NATIVE_INT64 : H5T_NATIVE_UINT64;
  require(H5Aread(attribute, native, &value) >= 0, Exit::data, "{}: attribute '{}': {}", name_, name, reason());
  return value;
}
template std::int64_t Object::number<std::int64_t>(const char*) const;
template std::uint64_t Object::number<std::uint64_t>(const char*) const;

// ---- Datasets ----

namespace {

DType dtype_in(const Handle& type, const std::string& name) {
  for (const DType known : {DType::f32, DType::bf16, DType::f64, DType::i32, DType::i64, DType::u8})
    if (H5Tequal(type, type_of(known)) > 0) return known;
  fail(Exit::data, "{}: has elements of an unknown type", name);
}

Shape shape_in(const Handle& space, const std::string& name) {
  const int dims = H5Sget_simple_extent_ndims(space);
  require(dims >= 1 && dims <= 8, Exit::data, "{}: has {} dimensions", name, dims);
  std::vector<hsize_t> extents(dims);
  H5Sget_simple_extent_dims(space, extents.data(), nullptr);
  Index count = 8;  // product of the extents times 8, the largest element size in bytes; must not overflow
  Shape shape;
  for (const hsize_t extent : extents) {
    const bool fits = extent > 0 && extent < hsize_t(std::numeric_limits<Index>::max()) && !__builtin_mul_overflow(count, Index(extent), &count);
    require(fits, Exit::data, "{}: has an impossible shape", name);
    shape.push_back(Index(extent));
  }
  return shape;
}

}  // namespace

Dataset::Dataset(std::string name, Handle dataset, Handle::Id file) : Object(std::move(name), std::move(dataset)), file_(file) {
  const LibraryLock lock;
  dtype_ = dtype_in(owned(H5Dget_type(object_), H5Tclose, name_), name_);
  shape_ = shape_in(owned(H5Dget_space(object_), H5Sclose, name_), name_);
}

bool Dataset::checksummed() const {
  const LibraryLock lock;
  const Handle plist = owned(H5Dget_create_plist(object_), H5Pclose, name_);
  if (H5Pget_layout(plist) != H5D_CHUNKED) return false;
  bool fletcher = false;
  for (int i = 0; i < H5Pget_nfilters(plist); ++i) {
    unsigned flags = 0, config = 0;
    std::size_t values = 0;
    const H5Z_filter_t filter = H5Pget_filter2(plist, unsigned(i), &flags, &values, nullptr, 0, nullptr, &config);
    fletcher = fletcher || filter == H5Z_FILTER_FLETCHER32;
    if (filter != H5Z_FILTER_FLETCHER32 && filter != H5Z_FILTER_DEFLATE) return false;
  }
  return fletcher;
}

void Dataset::read(const Box& box, void* data, const Shape& array, const Box& there) const {
  const BoxPair part{box, there};
  read({&part, 1}, data, array);
}

void Dataset::read(std::span<const BoxPair> parts, void* data, const Shape& array) const {
  const LibraryLock lock;
  if (const auto chunks = Chunks::of(object_, shape_, size_of(dtype_)); chunks && chunks->read(parts, data, array)) return;
  const Handle file = owned(H5Dget_space(object_), H5Sclose, name_), memory = space_of(array);
  for (const BoxPair& part : parts) {
    const auto how = &part == parts.data() ? H5S_SELECT_SET : H5S_SELECT_OR;
    select(file, part.from, how);
    select(memory, part.to, how);
  }
  if (H5Dread(object_, type_of(dtype_), memory, file, H5P_DEFAULT, data) >= 0) return;
  const std::string why = reason(), disk = failure_of(file_);
  require(disk.empty(), Exit::io, "{}: cannot be read: {}", name_, disk);
  fail(Exit::data, "{}: its content is damaged: {}", name_, why);
}

std::vector<Extent> Dataset::extents() const {
  const LibraryLock lock;
  const Handle space = owned(H5Dget_space(object_), H5Sclose, name_);
  hsize_t chunks = 0;
  require(H5Dget_num_chunks(object_, space, &chunks) >= 0, Exit::data, "{}: its list of chunks is damaged: {}", name_, reason());
  std::vector<Extent> list;
  for (hsize_t i = 0; i < chunks; ++i) {
    std::vector<hsize_t> corner(shape_.size());
    unsigned filters = 0;
    haddr_t address = 0;
    hsize_t size = 0;
    require(H5Dget_chunk_info(object_, space, i, corner.data(), &filters, &address, &size) >= 0, Exit::data, "{}: its list of chunks is damaged: {}",
            name_, reason());
    list.push_back({Index(address), Index(size)});
  }
  std::sort(list.begin(), list.end(), [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
  std::vector<Extent> joined;
  for (const Extent& e : list) {
    if (!joined.empty() && joined.back().offset + joined.back().bytes == e.offset) joined.back().bytes += e.bytes;
    else joined.push_back(e);
  }
  return joined;
}

Box Dataset::rows(Index first, Index count) const {
  Box box = full_box(shape_);
  box.first[0] = first, box.count[0] = count;
  return box;
}

void Dataset::read_rows(Index first, Index count, void* data) const {
  const Box box = rows(first, count);
  read(box, data, box.count, full_box(box.count));
}

bool Dataset::write_through_filters(Index first, Index last, const void* data) {
  if (first == last) return true;
  const Box box = rows(first, last - first);
  const Handle file = owned(H5Dget_space(object_), H5Sclose, name_), memory = space_of(box.count);
  select(file, box);
  return H5Dwrite(object_, type_of(dtype_), memory, file, H5P_DEFAULT, data) >= 0;
}

void Dataset::write_rows(Index first, Index count, const void* data) {
  const LibraryLock lock;
  const Index last = first + count, row_bytes = elements(shape_) / shape_[0] * size_of(dtype_);
  const auto from = [&](Index row) { return static_cast<const std::byte*>(data) + (row - first) * row_bytes; };
  const auto chunks = Chunks::of(object_, shape_, size_of(dtype_));
  const Chunks::Rows filled = chunks ? chunks->filled(first, last) : Chunks::Rows{first, first};
  const bool written = write_through_filters(first, filled.first, data) && (!chunks || chunks->write(filled, from(filled.first))) &&
                       write_through_filters(filled.last, last, from(filled.last));
  const std::string why = written ? "" : reason(), disk = failure_of(file_);
  if (!disk.empty() || !written) fail_write(name_, disk.empty() ? why : disk);
}

// ---- Files ----

File File::create(const std::filesystem::path& path) {
  const LibraryLock lock;
  return File(path.string(), create_for_writing(path, H5P_DEFAULT));
}

File File::open(const std::filesystem::path& path) {
  const LibraryLock lock;
  return File(path.string(), open_for_reading(path));
}

namespace {

Handle create_missing_groups() {
  Handle links(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  H5Pset_create_intermediate_group(links, 1);
  return links;
}

// NaN of a floating-point type; zero for integer types.
std::vector<std::byte> fill_value_of(DType type) {
  std::vector<std::byte> value(size_of(type));
  const auto put = [&](auto x) { std::memcpy(value.data(), &x, sizeof x); };
  if (type == DType::f64) put(std::numeric_limits<double>::quiet_NaN());
  if (type == DType::f32) put(std::numeric_limits<float>::quiet_NaN());
  if (type == DType::bf16) put(bf16(std::numeric_limits<float>::quiet_NaN()).bits);
  return value;
}

}  // namespace

Dataset File::create(const std::string& path, DType type, const Shape& shape, const Handle& properties) {
  const std::string name = name_ + ":" + path;
  Handle dataset(H5Dcreate2(object_, path.c_str(), type_of(type), space_of(shape), create_missing_groups(), properties, H5P_DEFAULT), H5Dclose);
  if (dataset < 0) {
    const std::string why = reason();
    fail_write(name, cause(object_, why));
  }
  return Dataset(name, std::move(dataset), object_);
}

Dataset File::create_dataset(const std::string& path, DType type, const Shape& shape, int deflate) {
  const LibraryLock lock;
  const Handle properties(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  const auto chunk = sizes(chunk_of(type, shape));
  H5Pset_chunk(properties, int(chunk.size()), chunk.data());
  if (deflate > 0) H5Pset_deflate(properties, unsigned(deflate));
  H5Pset_fletcher32(properties);
  H5Pset_fill_time(properties, H5D_FILL_TIME_NEVER);
  return create(path, type, shape, properties);
}

Dataset File::create_virtual(const std::string& path, DType type, const Shape& shape, const std::vector<VirtualPart>& parts) {
  const LibraryLock lock;
  const Handle properties(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_fill_value(properties, type_of(type), fill_value_of(type).data());
  for (const VirtualPart& part : parts) {
    const Handle here = space_of(shape), source = space_of(part.box.count);
    select(here, part.box);
    if (H5Pset_virtual(properties, here, part.file.c_str(), part.dataset.c_str(), source) < 0) fail_write(name_ + ":" + path, reason());
  }
  return create(path, type, shape, properties);
}

Dataset File::dataset(const std::string& path) const {
  const LibraryLock lock;
  const std::string name = name_ + ":" + path;
  Handle dataset(H5Dopen2(object_, path.c_str(), H5P_DEFAULT), H5Dclose);
  require(dataset >= 0, Exit::data, "{}: {}", name, reason());
  return Dataset(name, std::move(dataset), object_);
}

void File::name_root(const std::string& name) {
  const LibraryLock lock;
  if (H5Lcreate_soft("/", object_, name.c_str(), H5P_DEFAULT, H5P_DEFAULT) < 0) fail_write(name_ + ":/" + name, reason());
}

std::vector<std::string> File::datasets() const {
  const LibraryLock lock;
  std::vector<std::string> links, paths;
  const herr_t visited = H5Lvisit(
      object_, H5_INDEX_NAME, H5_ITER_INC,
      [](hid_t, const char* name, const H5L_info_t* info, void* to) {
        if (info->type == H5L_TYPE_HARD) static_cast<std::vector<std::string>*>(to)->push_back(name);
        return herr_t(0);
      },
      &links);
  require(visited >= 0, Exit::data, "{}: its list of contents is damaged: {}", name_, reason());
  for (const std::string& link : links) {
    const Handle object = owned(H5Oopen(object_, link.c_str(), H5P_DEFAULT), H5Oclose, name_ + ":/" + link);
    if (H5Iget_type(object) == H5I_DATASET) paths.push_back("/" + link);
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

Index File::bytes_read() const {
  const LibraryLock lock;
  return Index(condition_of(object_)->bytes_read);
}

void File::close() {
  const LibraryLock lock;
  close_written(object_, name_);
}

}  // namespace gyr::hdf5
