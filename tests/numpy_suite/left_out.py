"""What is not meant to pass, with the reason: patterns of names as pytest gives them."""

from fnmatch import fnmatchcase

TABLE: dict[str, tuple[str, ...]] = {
    "C interfaces of NumPy's own build": (
        "_core/tests/test_argparse.py*", "_core/tests/test_cpu_*", "_core/tests/test_cython.py*",
        "_core/tests/test_extint128.py*", "_core/tests/test_hashtable.py*",
        "_core/tests/test_limited_api.py*", "_core/tests/test_mem_policy.py*",
        "_core/tests/test_simd*", "_core/tests/test_custom_dtypes.py*",
        "_core/tests/test_conversion_utils.py*", "_core/tests/test_arraymethod.py*",
        "_core/tests/test_array_interface.py*", "_core/tests/test_api.py*",
        "_core/tests/test_umath_accuracy.py*", "f2py/*", "distutils/*", "_pyinstaller/*",
        "random/tests/test_extending.py*", "tests/test_ctypeslib.py*",
    ),
    "functions in C that NumPy has for its tests alone, and take one ndarray's memory": (
        "_core/tests/test_multiarray.py::TestNeighborhoodIter*",
        "_core/tests/test_multiarray.py::TestStackedNeighborhoodIter*",
        "_core/tests/test_multiarray.py::TestAsCArray*",
        "_core/tests/test_indexing.py::TestCApiAccess*",
        "_core/tests/test_casting_unittests.py::TestCasting::test_simple_direct_casts*",
        "_core/tests/test_casting_unittests.py::TestCasting::test_numeric_to_times*",
        "_core/tests/test_casting_unittests.py::TestCasting::test_time_to_time*",
        "_core/tests/test_multiarray.py::TestWritebackIfCopy::test_view_assign",
        "_core/tests/test_multiarray.py::TestWritebackIfCopy::test_dealloc_warning",
        "_core/tests/test_multiarray.py::TestWritebackIfCopy::test_view_discard_refcount",
        "_core/tests/test_multiarray.py::TestNewBufferProtocol::"
        "test_error_if_stored_buffer_info_is_corrupted*",
        "_core/tests/test_scalar_methods.py::test_array_wrap*",
        "_core/tests/test_overrides.py::TestGetImplementingArgs::test_ndarray_subclass_and_duck_array",
        "_core/tests/test_ufunc.py::TestUfunc::test_ufunc_custom_out",
        "linalg/tests/test_linalg.py::test_blas64_geqrf_lwork_smoketest",
    ),
    "signatures as NumPy's C code states them: ours have types, and `mesh` and `placements`": (
        "ma/tests/test_core.py::test_convert2ma_signature(empty*",
        "ma/tests/test_core.py::test_convert2ma_signature(identity*",
        "_core/tests/test_multiarray.py::TestTextSignatures::test_array_method_signatures*",
        "_core/tests/test_multiarray.py::TestTextSignatures::"
        "test_c_func_dispatcher_text_signature(empty_like*",
        "_core/tests/test_multiarray.py::TestTextSignatures::"
        "test_add_newdoc_function_signature(arange-*",
        "_core/tests/test_multiarray.py::TestTextSignatures::"
        "test_add_newdoc_function_signature(from*",
        "_core/tests/test_numeric.py::TestCreationFuncs::test_signatures*",
        "_core/tests/test_scalar_methods.py::TestSignature::test_array_scalar_method_signatures*",
    ),
    "namespaces: of NumPy's scalars NumPy, of arrays ours, for which the tests have a stand-in": (
        "_core/tests/test_regression.py::TestRegression::test__array_namespace__",
        "_core/tests/test_scalar_methods.py::TestDevice::test___array_namespace__*",
    ),
    "a class of the test's whose `__array__` is to be NumPy's own array, and would be ours": (
        "ma/tests/test_subclassing.py::TestClassWrapping::test_masked_binary_operations",
        "_core/tests/test_multiarray.py::TestArrayCreationCopyArgument::test___array__",
        "_core/tests/test_multiarray.py::TestArrayCreationCopyArgument::test___array__copy_*",
        "_core/tests/test_overrides.py::test_function_like",
        "_core/tests/test_array_coercion.py::TestStringDiscovery::"
        "test_unpack_first_level(__array__]",
        "_core/tests/test_array_coercion.py::TestNested::test_nested_arraylikes(__array__]",
        "_core/tests/test_array_coercion.py::TestNested::test_uneven_depth_ragged(__array__]",
        "_core/tests/test_array_coercion.py::TestArrayLikes::*_special_case(*__array__]",
        "_core/tests/test_deprecations.py::TestDeprecatedArrayWrap::test_deprecated",
        "_core/tests/test_mem_overlap.py::test_non_ndarray_inputs",
        "_core/tests/test_scalarmath.py::TestMultiply::test_no_seq_repeat_basic_array_like",
        "_core/tests/test_umath.py::TestSpecialMethods::test_wrap",
        "_core/tests/test_umath.py::TestSpecialMethods::test_failing_wrap",
        "_core/tests/test_umath.py::TestSpecialMethods::test_none_wrap",
        "_core/tests/test_umath.py::TestSpecialMethods::test_default_prepare",
        "lib/tests/test_arraysetops.py::TestSetOps::test_intersect1d_array_like",
        "lib/tests/test_function_base.py::TestBincount::test_gh_28354_array_like",
    ),
    "a type is asked under both names of a function, NumPy's and ours, which the test forbids": (
        "_core/tests/test_overrides.py::TestArrayLike::test_array_like_not_implemented",
        "_core/tests/test_overrides.py::TestArrayLike::test_exception_handling",
        "_core/tests/test_overrides.py::TestArrayLike::test_nep35_functions_as_array_functions",
    ),
    "numbers of references": (
        "_core/tests/test_dlpack.py::TestDLPack::test_dunder_dlpack_refcount*",
        "_core/tests/test_numeric.py::TestCreationFuncs::test_for_reference_leak",
        "_core/tests/test_multiarray.py::TestCTypes::test_ctypes_data_as_holds_reference*",
        "_core/tests/test_multiarray.py::TestCTypes::test_ctypes_as_parameter_holds_reference",
        "_core/tests/test_multiarray.py::TestResize::test_check_reference*",
        "_core/tests/test_multiarray.py::TestResize::test_check_weakref",
        "lib/tests/test_function_base.py::TestLeaks*",
    ),
    "whose memory it is: a distributed array has no `base`, and no strides to set": (
        "ma/tests/test_core.py::TestMaskedArray::test_copy",
        "ma/tests/test_core.py::TestMaskedArray::test_filled_with_f_order",
        "ma/tests/test_core.py::TestMaskedArrayInPlaceArithmetic::test_inplace_addition_scalar",
        "ma/tests/test_core.py::TestMaskedFields::test_setitem",
        "ma/tests/test_old_ma.py::TestMa::test_testCopySize",
        "_core/tests/test_multiarray.py::TestAttributes::test_attributes",
        "_core/tests/test_multiarray.py::TestAttributes::test_set_stridesattr",
        "_core/tests/test_multiarray.py::TestZeroRank::test_ellipsis_subscript",
        "_core/tests/test_multiarray.py::TestStructured::test_base_attr",
        "_core/tests/test_multiarray.py::TestFromBuffer::test_array_base*",
        "_core/tests/test_multiarray.py::test_interface_nullptr*",
        "_core/tests/test_numeric.py::TestBroadcast::test_broadcast_in_args",
        "_core/tests/test_numeric.py::TestBroadcast::test_broadcast_single_arg",
        "_core/tests/test_numeric.py::TestBroadcast::test_broadcast_error_kwargs",
        "_core/tests/test_multiarray.py::TestStructured::test_structured_asarray_is_view",
        "_core/tests/test_multiarray.py::TestMethods::test_matmul_out",
        "_core/tests/test_multiarray.py::TestRecord::test_multifield_indexing_view",
        "_core/tests/test_multiarray.py::TestMatmul::test_out_contiguous",
        "_core/tests/test_multiarray.py::TestArrayCreationCopyArgument::test_array_interfaces",
        "_core/tests/test_multiarray.py::TestArrayCreationCopyArgument::"
        "test_order_mismatch(*-arr0]",
        "_core/tests/test_multiarray.py::TestArrayCreationCopyArgument::test_order_mismatch(A-*",
        "_core/tests/test_multiarray.py::TestArrayCreationCopyArgument::test_order_mismatch(K-*",
        "_core/tests/test_multiarray.py::TestArrayCreationCopyArgument::"
        "test_order_mismatch(C-C-arr1]",
        "_core/tests/test_multiarray.py::TestArrayCreationCopyArgument::"
        "test_order_mismatch(F-F-arr1]",
        "_core/tests/test_multiarray.py::TestArrayCreationCopyArgument::test_compatible_cast",
        "_core/tests/test_indexing.py::TestIndexing::test_empty_tuple_index",
        "_core/tests/test_indexing.py::TestIndexing::test_ellipsis_index",
        "_core/tests/test_stringdtype.py::test_create_with_copy_none",
        "_core/tests/test_dtype.py::TestSubarray::test_subarray_base_item",
        "_core/tests/test_einsum.py::TestEinsum::test_einsum_all_contig_non_contig_output",
        "_core/tests/test_einsum.py::TestEinsum::test_einsum_views",
        "_core/tests/test_ufunc.py::TestUfunc::test_matrix_multiply",
        "_core/tests/test_memmap.py::TestMemmap::test_slicing_keeps_references",
        "_core/tests/test_memmap.py::TestMemmap::test_view",
        "_core/tests/test_array_coercion.py::TestAsArray::test_dtype_identity",
        "_core/tests/test_regression.py::TestRegression::test_alignment_update",
        "_core/tests/test_deprecations.py::TestDeprecatedArrayAttributeSetting::"
        "test_deprecated_strides_set",
    ),
    "what NumPy keeps within the memory of a text of any length": (
        "_core/tests/test_stringdtype.py::TestImplementation*",
    ),
    "a number that a C extension changes in place": (
        "_core/tests/test_multiarray.py::TestTemporaryElide::test_extension_incref_elide*",
    ),
    "NumPy's own package: names, types, documentation and scripts": (
        "_core/tests/test_function_base.py::TestAdd_newdoc::test_add_doc",
        "tests/test_public_api.py*", "tests/test_configtool.py*", "tests/test_lazyloading.py*",
        "tests/test_numpy_config.py*", "tests/test_reloading.py*", "tests/test_scripts.py*",
        "tests/test_warnings.py*", "tests/test__all__.py*", "typing/*",
    ),
    "NumPy does not tell those who answer for a ufunc whether out=None was said": (
        "_core/tests/test_ufunc.py::TestUfunc::test_where_warns",
    ),
    "operator.concat asks a slot of C types, and adds where a class in Python has none": (
        "_core/tests/test_shape_base.py::TestConcatenate::test_operator_concat",
    ),
    "an array's class by `is`: np.ndarray stands for NumPy's arrays and ours, and equals both": (
        "ma/tests/test_core.py::test_astype_mask_ordering",
        "_core/tests/test_arrayobject.py::test_array_wrap(*",
        "_core/tests/test_indexing.py::TestSubclasses::test_basic",
        "_core/tests/test_memmap.py::TestMemmap::test_getitem",
        "_core/tests/test_memmap.py::TestMemmap::test_ufunc_return_ndarray",
        "_core/tests/test_multiarray.py::TestZeroRank::test_real_imag",
        "_core/tests/test_multiarray.py::TestSubscripting::test_test_zero_rank",
        "_core/tests/test_numeric.py::TestNonzero::test_return_type",
        "_core/tests/test_numeric.py::TestRequire::test_ensure_array",
        "_core/tests/test_overrides.py::TestArrayLike::test_array_like(True-*",
        "_core/tests/test_overrides.py::TestArrayLike::test_array_like_fromfile(True]",
        "_core/tests/test_regression.py::TestRegression::test_attributes",
        "_core/tests/test_regression.py::TestRegression::test_squeeze_type",
        "_core/tests/test_ufunc.py::TestUfunc::test_array_wrap_array_priority",
        "_core/tests/test_ufunc.py::TestUfunc::test_output_ellipsis(array]",
        "_core/tests/test_ufunc.py::TestUfunc::test_output_ellipsis(scalar]",
        "_core/tests/test_umath.py::TestSpecialMethods::test_priority",
        "lib/tests/test_function_base.py::TestDiff::test_n",
        "lib/tests/test_nanfunctions.py::test__nan_mask(arr0-*",
        "lib/tests/test_nanfunctions.py::test__nan_mask(arr3-*",
        "lib/tests/test_stride_tricks.py::test_subclasses",
        "matrixlib/tests/test_defmatrix.py::TestPower::test_returntype",
        "matrixlib/tests/test_matrix_linalg.py::TestQRMatrix::test_mode_raw",
        "matrixlib/tests/test_regression.py::TestRegression::test_matrix_properties",
        "linalg/tests/test_linalg.py::TestEig::test_sq_cases",
        "linalg/tests/test_linalg.py::TestInv::test_sq_cases",
        "linalg/tests/test_linalg.py::TestLstsq::test_*sq_cases",
        "linalg/tests/test_linalg.py::TestPinv::test_sq_cases",
        "linalg/tests/test_linalg.py::TestPinvHermitian::test_herm_cases",
        "linalg/tests/test_linalg.py::TestSolve::test_sq_cases",
        "linalg/tests/test_linalg.py::TestSVD::test_sq_cases",
        "linalg/tests/test_linalg.py::TestSVDHermitian::test_herm_cases",
    ),
    "view(np.ndarray) of NumPy's own arrays and scalars, whose C code asks for its own class": (
        "_core/tests/test_umath.py::test_outer_subclass_preserve(arr*",
        "_core/tests/test_umath.py::test_outer_bad_subclass",
        "lib/tests/test_shape_base.py::TestApplyAlongAxis::test_subclass*",
        "ma/tests/test_subclassing.py::TestSubclassing::test_subclass_items",
        "ma/tests/test_subclassing.py::TestSubclassing::test_subclass_nomask_items",
        "_core/tests/test_records.py::TestFromrecords::test_recarray_views",
        "_core/tests/test_ufunc.py::TestUfunc::test_structured_equal",
        "lib/tests/test_shape_base.py::TestApplyAlongAxis::test_axis_insertion",
    ),
    "NumPy's scalar types, called: C code, which takes and gives NumPy's own arrays": (
        "_core/tests/test_datetime.py::TestDateTime::test_datetime_nat_casting",
        "_core/tests/test_datetime.py::TestDateTime::test_datetime_scalar_construction",
        "_core/tests/test_datetime.py::TestDateTime::test_timedelta_scalar_construction",
        "_core/tests/test_dtype.py::TestSubarray::test_shape_sequence",
        "_core/tests/test_regression.py::TestRegression::test_for_object_scalar_creation",
        "_core/tests/test_scalar_ctors.py::test_void_arraylike_trumps_byteslike",
        "_core/tests/test_scalar_ctors.py::test_void_via_length(length2]",
    ),
    "buffers of objects and of records with gaps: NumPy asks for a buffer before the array, and "
    "would lose what a buffer does not tell": (
        "_core/tests/test_array_coercion.py::TestStringDiscovery::"
        "test_unpack_first_level(memoryview]",
        "_core/tests/test_multiarray.py::TestNewBufferProtocol::test_export_and_pickle_user_dtype*",
        "_core/tests/test_multiarray.py::TestNewBufferProtocol::test_export_flags",
        "_core/tests/test_multiarray.py::TestNewBufferProtocol::test_invalid_buffer_format",
        "_core/tests/test_multiarray.py::TestNewBufferProtocol::test_out_of_order_fields",
        "_core/tests/test_multiarray.py::TestNewBufferProtocol::test_padded_struct_array",
        "_core/tests/test_multiarray.py::TestNewBufferProtocol::test_roundtrip",
        "_core/tests/test_multiarray.py::TestNewBufferProtocol::test_roundtrip_single_types",
        "_core/tests/test_multiarray.py::test_array_interface_itemsize",
        "_core/tests/test_regression.py::TestRegression::test__array_interface__descr",
    ),
    "np.nditer walks over memory": ("_core/tests/test_nditer.py*",),
    "arrays in an array of objects, which the tests make of ours": (
        "_core/tests/test_array_coercion.py::TestArrayLikes::test_0d_object_special_case(subclass]",
        "_core/tests/test_array_coercion.py::TestNested::test_nested_arraylikes(subclass]",
        "_core/tests/test_array_coercion.py::TestNested::test_uneven_depth_ragged(subclass]",
        "_core/tests/test_arrayprint.py::TestArrayRepr::test_0d_object_subclass",
        "ma/tests/test_core.py::TestMaskedArray::test_object_with_array",
        "ma/tests/test_core.py::TestMaskedObjectArray::test_nested_ma",
        "random/tests/*::test_choice_return_shape",
        "random/tests/*::test_shuffle_of_array_of_objects",
        "random/tests/*::test_shuffle_no_object_unpacking*",
    ),
    "a class of the test's that gives NumPy's C code an array, which is ours here": (
        "random/tests/*::test_permutation_subclass", "random/tests/*::test_non_spawnable",
    ),
    "threads that draw arrays large enough to be cut: only the main one talks to other ranks": (
        "random/tests/*::TestThread::test_exp", "random/tests/*::TestThread::test_multinomial",
    ),
    "the line of a warning is the user's when it is shown": (
        "random/tests/test_random.py::*::test_shuffle_untyped_warning*",
    ),
    "NumPy's hidden state behind its functions, which are ours": (
        "random/tests/test_direct.py::*::test_coercion_RandomState_Generator",
        "random/tests/test_randomstate.py::test_hot_swap",
    ),
    "matrices by directives: np.asmatrix(np.r_[...]) says the same": (
        "matrixlib/tests/test_interaction.py::TestConcatenatorMatrix::test_matrix*",
        "matrixlib/tests/test_masked_matrix.py::TestConcatenator::test_matrix",
    ),
    "masked arrays of matrices: what is taken of the flat one, the pickle, and outer products": (
        "ma/tests/test_core.py::TestMaskedArray::test_pickling_sub*",
        "matrixlib/tests/test_masked_matrix.py::TestMaskedMatrix::test_flat",
        "matrixlib/tests/test_masked_matrix.py::TestMaskedMatrix::test_pickling_subbaseclass",
        "matrixlib/tests/test_masked_matrix.py::TestMaskedMatrix::test_view",
        "matrixlib/tests/test_masked_matrix.py::TestSubclassing::test_masked_binary_operations",
    ),
    "comparisons of the tests, and methods that NumPy's arrays do not have": (
        "matrixlib/tests/test_defmatrix.py::TestMatrixReturn::test_instance_methods",
        "matrixlib/tests/test_interaction.py::test_array_equal_error_message_matrix",
    ),
    "what view() asks of a class of masked records in C": (
        "ma/tests/test_mrecords.py::TestView::test_view_simple_dtype",
    ),
    "NumPy's module, for which the tests have a stand-in": (
        "ma/tests/test_core.py::TestOptionalArgs::test_ndarrayfuncs",
    ),
    "functions that do not keep a class of the program's": (
        "_core/tests/test_function_base.py::Test*space::test_subclass",
        "lib/tests/test_function_base.py::TestVectorize::test_subclasses",
        "matrixlib/tests/test_interaction.py::test_ediff1d_matrix",
        "matrixlib/tests/test_interaction.py::test_iter_allocate_output_subtype",
        "matrixlib/tests/test_interaction.py::test_polynomial_mapdomain",
    ),
}  # fmt: skip


#: The same, where there are several ranks.
ON_SEVERAL: dict[str, tuple[str, ...]] = {
    "an element of a cut array is a copy, which cannot be written to": (
        "_core/tests/test_records.py::TestRecord::test_assignment1",
        "_core/tests/test_records.py::TestRecord::test_record_scalar_setitem",
        "ma/tests/test_mrecords.py::TestMRecords::test_withnames",
    ),
    "the last digit of a sum over ranks": (
        "matrixlib/tests/test_interaction.py::test_average_matrix",
    ),
    "each rank's temporary file has a name of its own, and a file is one for all ranks": (
        "_core/tests/test_memmap.py::TestMemmap*",
        "_core/tests/test_multiarray.py::TestIO::test_largish_file*",
        "_core/tests/test_multiarray.py::TestIO::test_file_position_after_fromfile*",
        "_core/tests/test_multiarray.py::TestIO::test_tofile_cleanup*",
        "lib/tests/test_format.py::test_file_truncated",
        "lib/tests/test_format.py::test_unicode_field_names",
        "lib/tests/test_io.py::TestSavezLoad::test_array*",
        "lib/tests/test_io.py::TestSavezLoad::test_mmap",
        "lib/tests/test_io.py::TestSavezLoad::test_record",
        "lib/tests/test_io.py::TestSavezLoad::test_savez_filename_clashes",
        "lib/tests/test__datasource.py::TestDataSourceOpen::test_Valid*File",
        "lib/tests/test_io.py::TestSavezLoad::test_repr_lists_keys*",
        "lib/tests/test_io.py::TestPathUsage::test_save_load_memmap_readwrite*",
        "lib/tests/test__datasource.py::TestRepositoryExists::test_CachedHTTPFile",
    ),
    "bytes of a cut array seen as items that a cut goes through, which is refused": (
        "_core/tests/test_strings.py::test_string_comparisons(False-*",
        "_core/tests/test_casting_unittests.py::TestCasting::"
        "test_simple_string_casts_roundtrip(float16-U*",
    ),
    "threads that talk to other ranks, which only the main one may": (
        "_core/tests/test_multithreading.py::test_structured_advanced_indexing",
        "_core/tests/test_multithreading.py::test_stringdtype_multithreaded_access_and_mutation",
        "_core/tests/test_multithreading.py::test_arg_locking*",
    ),
    "a million elements of a cut array exchanged one by one: hours": (
        "_core/tests/test_multiarray.py::TestMethods::test_sort_degraded",
    ),
    "a warning about a file is given once, by the rank that reads it": (
        "lib/tests/test_format.py::test_python2_python3_interoperability",
    ),
    "how often a function is called that each rank calls for its elements": (
        "lib/tests/test_function_base.py::TestVectorize::test_cache",
    ),
    "the memory of the whole, of which a rank has a part": (
        "_core/tests/test_multiarray.py::TestDot::test_accelerate_framework_sgemv_fix",
        "_core/tests/test_regression.py::TestRegression::test_to_ctypes",
        "_core/tests/test_regression.py::TestRegression::test_dot_big_stride",
    ),
}


def reason(name: str, ranks: int = 1) -> str | None:
    """Why a test is not meant to pass on so many ranks; None if it is."""
    plain = name.replace("[", "(")  # a bracket means something in a pattern
    for why, patterns in listed(ranks).items():
        if any(fnmatchcase(plain, pattern) for pattern in patterns):
            return why
    return None


def listed(ranks: int) -> dict[str, tuple[str, ...]]:
    """The table for so many ranks."""
    return TABLE | ON_SEVERAL if ranks > 1 else TABLE
